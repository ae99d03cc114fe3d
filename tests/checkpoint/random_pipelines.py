"""Pipelines put together by chance, the same for the same seed in every process."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain import experimental as X


class Parts(wg.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [10 * element + part for part in range(element % 3)]


class Noise(wg.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return element + int(rng.integers(1000)) * 1000


def plus_seven(x: int) -> int:
    return x + 7


def is_kept(x: int) -> bool:
    return x % 5 != 2


def as_tokens(x: int) -> dict[str, Any]:
    return {"x": np.full(1 + x % 4, x)}


def random_pipeline(seed: int, workers: int) -> Any:
    """Return a dataset, or now and then a DataLoader, that runs in so many workers."""
    choose = random.Random(seed)
    if choose.random() < 0.2:
        return _loader(choose, workers)
    ds = _iterable(choose, _indexable(choose))
    ds = choose.choice(_LAST)(ds)
    return ds.mp_prefetch(wg.MultiprocessingOptions(workers, choose.choice([1, 4])))


def _loader(choose: random.Random, workers: int) -> wg.DataLoader:
    middle: list[Any] = choose.choice([[], [Noise()], [Parts()]])
    return wg.DataLoader(
        data_source=range(60),
        sampler=wg.samplers.IndexSampler(
            60, shuffle=True, num_epochs=choose.choice([1, 2]), seed=choose.randrange(100)
        ),
        operations=[*middle, wg.transforms.Batch(choose.choice([1, 2]))],
        worker_count=workers,
    )


def _indexable(choose: random.Random) -> Any:
    ds = choose.choice(
        [
            wg.MapDataset.range(40 + choose.randrange(40)),
            wg.MapDataset.source(list(range(100, 160))),
            wg.MapDataset.mix([wg.MapDataset.range(40), wg.MapDataset.range(100, 160)], [1, 2]),
            wg.MapDataset.concatenate([wg.MapDataset.range(30), wg.MapDataset.range(70, 100)]),
        ]
    )
    for _ in range(choose.randrange(4)):
        ds = choose.choice(_BY_INDEX)(ds, choose.randrange(100))
    return ds


_BY_INDEX: list[Callable[[Any, int], Any]] = [
    lambda ds, seed: ds.shuffle(seed=seed),
    lambda ds, seed: ds.map(plus_seven),
    lambda ds, seed: ds.random_map(Noise(), seed=seed),
    lambda ds, seed: ds.filter(is_kept),
    lambda ds, seed: ds.repeat(2)[seed % 7 :],
]


def _iterable(choose: random.Random, ds: Any) -> Any:
    ds = ds.to_iter_dataset(choose.choice([wg.ReadOptions(0, 0), wg.ReadOptions(2, 5)]))
    for _ in range(1 + choose.randrange(3)):
        ds = choose.choice(_IN_ORDER)(ds, choose.randrange(100))
    return ds


_IN_ORDER: list[Callable[[Any, int], Any]] = [
    lambda ds, seed: ds.map(plus_seven),
    lambda ds, seed: ds.filter(is_kept),
    lambda ds, seed: ds.random_map(Noise(), seed=seed),
    lambda ds, seed: X.WindowShuffleIterDataset(ds, window_size=2 + seed % 9, seed=seed),
    lambda ds, seed: X.FlatMapIterDataset(ds, Parts()),
    lambda ds, seed: X.RepeatIterDataset(X.LimitIterDataset(ds, 5 + seed % 9), 3),
    lambda ds, seed: X.RepeatIterDataset(X.CacheIterDataset(X.LimitIterDataset(ds, 9)), 3),
    lambda ds, seed: X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=1 + seed % 4),
    lambda ds, seed: wg.IterDataset.mix({"a": ds, "b": ds.map(plus_seven)}, {"a": 1, "b": 3}),
]

_LAST: list[Callable[[Any], Any]] = [
    lambda ds: ds,
    lambda ds: ds.batch(3),
    lambda ds: X.RebatchIterDataset(ds.batch(3), 2),
    lambda ds: X.ZipIterDataset([ds, ds.map(plus_seven)]),
    lambda ds: X.FirstFitPackIterDataset(
        ds.map(as_tokens), length_struct={"x": 6}, num_packing_bins=3
    ),
    lambda ds: X.ConcatThenSplitIterDataset(ds.map(as_tokens), length_struct={"x": 6}),
]
