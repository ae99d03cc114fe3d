"""Pipelines before and after a change, and what a restore has to say of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain import experimental

R = wg.MapDataset.range


class Records:
    """A source that says what it is."""

    def __init__(self, name: str, length: int = 40) -> None:
        self.name = name
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index

    def __repr__(self) -> str:
        return f"Records({self.name!r})"


class Tokens(wg.transforms.Map):
    def map(self, element: int) -> dict[str, Any]:
        return {"x": np.full(1 + element % 3, element)}


def plus_one(x: int) -> int:
    return x + 1


def add_one(x: int) -> int:
    return x + 1


def is_small(x: Any) -> bool:
    return bool(np.all(np.asarray(x) < 30))


def with_noise(x: int, rng: np.random.Generator) -> float:
    return x + float(rng.random())


def packed(bins: int = 2, seed: int = 0, row: int = 4) -> Any:
    return experimental.FirstFitPackIterDataset(
        R(40).map(Tokens()).to_iter_dataset(),
        length_struct={"x": row},
        num_packing_bins=bins,
        seed=seed,
    )


def windows(ds: Any, size: int = 5, seed: int = 1) -> Any:
    return experimental.WindowShuffleIterDataset(ds, window_size=size, seed=seed)


def mixed(*weights: float) -> Any:
    return wg.IterDataset.mix([R(40).to_iter_dataset(), R(40)], weights)


def mixed_by_name(**weights: float) -> Any:
    return wg.IterDataset.mix({name: R(40).to_iter_dataset() for name in weights}, weights)


def interleaved(cycle: int, *lengths: int) -> Any:
    datasets = [R(length).to_iter_dataset() for length in lengths]
    return experimental.InterleaveIterDataset(datasets, cycle_length=cycle)


def loader(seed: int = 1, length: int = 40, operations: Any = ()) -> wg.DataLoader:
    sampler = wg.samplers.IndexSampler(length, shuffle=True, num_epochs=1, seed=seed)
    source = Records("train", length)
    return wg.DataLoader(data_source=source, sampler=sampler, operations=operations)


Change = tuple[Callable[[], Any], Callable[[], Any], list[str]]

BREAKING: dict[str, Change] = {
    "seed": (
        lambda: R(40).shuffle(seed=1),
        lambda: R(40).shuffle(seed=2),
        ["stage 2, ShuffleMapDataset,", "seed=2", "had 1"],
    ),
    "derived seed": (
        lambda: R(40).seed(1).shuffle(),
        lambda: R(40).seed(2).shuffle(),
        ["ShuffleMapDataset", "seed="],
    ),
    "length of the source": (
        lambda: wg.MapDataset.source(Records("train")),
        lambda: wg.MapDataset.source(Records("train", 50)),
        ["SourceMapDataset", "length=50", "had 40"],
    ),
    "another source": (
        lambda: wg.MapDataset.source(Records("train")),
        lambda: wg.MapDataset.source(Records("test")),
        ["SourceMapDataset", "source=\"Records('test')\"", "had \"Records('train')\""],
    ),
    "another kind of source": (
        lambda: wg.MapDataset.source(list(range(40))),
        lambda: wg.MapDataset.source(np.arange(40)),
        ["SourceMapDataset", "'list'", "ndarray of int64"],
    ),
    "slice": (
        lambda: R(40)[0::2],
        lambda: R(40)[1::2],
        ["SliceMapDataset", "start=1", "had 0"],
    ),
    "indices": (
        lambda: R(40).slice([1, 2, 3, 4, 5]),
        lambda: R(40).slice([5, 4, 3, 2, 1]),
        ["ReindexMapDataset", "indices="],
    ),
    "epochs before a shuffle": (
        lambda: R(40).repeat(2).shuffle(seed=1),
        lambda: R(40).repeat(3).shuffle(seed=1),
        ["ShuffleMapDataset", "length=120", "had 80"],
    ),
    "weights": (
        lambda: wg.MapDataset.mix([R(40), R(40)], [1, 2]),
        lambda: wg.MapDataset.mix([R(40), R(40)], [2, 1]),
        ["MixedMapDataset", "weights=[200, 100]", "had [100, 200]"],
    ),
    "weights without names": (lambda: mixed(1, 2), lambda: mixed(1, 3), ["weights=[100, 300]"]),
    "component": (
        lambda: wg.MapDataset.mix([R(40), R(40).shuffle(seed=1)]),
        lambda: wg.MapDataset.mix([R(40), R(40).shuffle(seed=2)]),
        ["MixedMapDataset, input 1, stage 2, ShuffleMapDataset, has seed=2"],
    ),
    "batch size before reading": (
        lambda: R(40).batch(2),
        lambda: R(40).batch(4),
        ["BatchMapDataset", "batch_size=4", "had 2"],
    ),
    "batch size before a window": (
        lambda: windows(R(40).to_iter_dataset().batch(2)),
        lambda: windows(R(40).to_iter_dataset().batch(4)),
        ["BatchIterDataset", "batch_size=4"],
    ),
    "filter before a window": (
        lambda: windows(R(40).to_iter_dataset()),
        lambda: windows(R(40).to_iter_dataset().filter(is_small)),
        ["FilterIterDataset, is new"],
    ),
    "window": (
        lambda: windows(R(40).to_iter_dataset()),
        lambda: windows(R(40).to_iter_dataset(), size=6),
        ["WindowShuffleIterDataset", "window_size=6", "had 5"],
    ),
    "stage gone": (
        lambda: R(40).shuffle(seed=1).repeat(2),
        lambda: R(40).repeat(2),
        ["ShuffleMapDataset, was removed"],
    ),
    "stage added": (
        lambda: R(40).to_iter_dataset(),
        lambda: windows(R(40).to_iter_dataset()),
        ["WindowShuffleIterDataset, is new"],
    ),
    "stages in another order": (
        lambda: R(40).shuffle(seed=1)[:20],
        lambda: R(40)[:20].shuffle(seed=1),
        ["ShuffleMapDataset"],
    ),
    "packing": (packed, lambda: packed(bins=3), ["FirstFitPackIterDataset", "num_bins=3", "had 2"]),
    "packed rows": (packed, lambda: packed(row=5), ["features=", "capacity=5"]),
    "cycle": (
        lambda: interleaved(2, 9, 9, 9),
        lambda: interleaved(3, 9, 9, 9),
        ["InterleaveIterDataset", "cycle_length=3", "had 2"],
    ),
    "number of datasets": (
        lambda: interleaved(2, 9, 9),
        lambda: interleaved(2, 9, 9, 9),
        ["InterleaveIterDataset, input 2 is new"],
    ),
    "sampler": (loader, lambda: loader(seed=2), ["SampledMapDataset", "seed=2", "seed=1"]),
    "loader's source": (loader, lambda: loader(length=41), ["SampledMapDataset", "length=41"]),
}

HARMLESS: dict[str, Change] = {
    "function": (
        lambda: R(40).map(plus_one),
        lambda: R(40).map(add_one),
        ["MapMapDataset", "transform='add_one'", "had 'plus_one'"],
    ),
    "map added": (
        lambda: R(40).shuffle(seed=1).to_iter_dataset(),
        lambda: R(40).shuffle(seed=1).to_iter_dataset().map(plus_one),
        ["MapIterDataset, is new"],
    ),
    "map moved": (
        lambda: R(40).map(plus_one).map(float).shuffle(seed=1),
        lambda: R(40).map(plus_one).shuffle(seed=1).to_iter_dataset().map(float),
        ["MapMapDataset, was removed", "MapIterDataset, is new"],
    ),
    "reading": (
        lambda: R(40).to_iter_dataset(wg.ReadOptions(2, 4)),
        lambda: R(40).to_iter_dataset(wg.ReadOptions(4, 8)),
        ["PrefetchIterDataset", "num_threads=4", "num_threads=2"],
    ),
    "epochs": (
        lambda: R(40).shuffle(seed=1).repeat(2),
        lambda: R(40).shuffle(seed=1).repeat(3),
        ["RepeatMapDataset", "num_epochs=3", "had 2"],
    ),
    "random numbers": (
        lambda: R(40).random_map(with_noise, seed=1),
        lambda: R(40).random_map(with_noise, seed=2),
        ["RandomMapMapDataset", "seed=2", "had 1"],
    ),
    "batch size behind the position": (
        lambda: R(40).to_iter_dataset().batch(2),
        lambda: R(40).to_iter_dataset().batch(3),
        ["BatchIterDataset", "batch_size=3", "had 2"],
    ),
    "filter behind the position": (
        lambda: R(40).to_iter_dataset(),
        lambda: R(40).to_iter_dataset().filter(is_small),
        ["FilterIterDataset, is new"],
    ),
    "thread": (
        lambda: R(40).to_iter_dataset(),
        lambda: experimental.ThreadPrefetchIterDataset(
            R(40).to_iter_dataset(), prefetch_buffer_size=2
        ),
        ["ThreadPrefetchIterDataset, is new"],
    ),
    "weights by name": (
        lambda: mixed_by_name(a=1, b=2),
        lambda: mixed_by_name(a=1, b=3),
        ["MixedIterDataset", "weights=[100, 300]"],
    ),
    "components by name": (
        lambda: mixed_by_name(a=1, b=2),
        lambda: mixed_by_name(a=1, b=2, c=1),
        ["MixedIterDataset, input c is new"],
    ),
    "operation": (
        loader,
        lambda: loader(operations=[wg.transforms.Batch(2)]),
        ["Batch, is new"],
    ),
}
