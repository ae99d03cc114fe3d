"""Random pipelines of elements that carry their own ids, to compare origins with."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain._graph.error_rules import tolerates

X: Any = wg.experimental

Place = tuple[int, int | None, tuple[int, int] | None]
"""The id of a record, its row and its span."""

_STARTS = {"a": 1, "b": 1001, "c": 2001}
"""The id of the first record of each source. Ids are not 0, because that is padding."""


def source(name: str, length: int) -> wg.MapDataset[Any]:
    start = _STARTS[name]
    return wg.MapDataset.source(list(range(start, start + length))).named(name)


def id_of(origin: wg.Origin) -> int:
    name = origin.source.rpartition(": ")[2][0]  # Without the number of a source of that name.
    return _STARTS[name] + origin.index


def places_of(element: Any, row: int | None = None) -> Iterator[Place]:
    """Yield what an element itself says about where it comes from."""
    if isinstance(element, tuple):
        for part in element:
            yield from places_of(part, row)
    elif isinstance(element, dict) and "x_segment_ids" not in element:
        for number, cells in enumerate(element["x"]):
            if cells[0]:  # Else the row is padding.
                yield int(cells[0]), number, None
    elif isinstance(element, dict):
        yield from _places_of_packed(element["x"], element["x_segment_ids"], row)
    elif isinstance(element, np.ndarray) and element.ndim:
        for number, cell in enumerate(element.reshape(-1).tolist()):
            yield cell, number, None
    else:
        yield int(element), row, None


def _places_of_packed(cells: Any, segments: Any, row: int | None) -> Iterator[Place]:
    if cells.ndim > 1:
        for number, (own, numbers) in enumerate(zip(cells, segments, strict=True)):
            yield from _places_of_packed(own, numbers, number)
        return
    for segment in range(1, int(segments.max(initial=0)) + 1):
        here = np.flatnonzero(segments == segment)
        yield int(cells[here[0]]), row, (int(here[0]), int(here[-1]) + 1)


class Copies(wg.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element] * (element % 4)


class EveryOther(wg.MapDataset[Any]):
    """A dataset of the user's."""

    def __len__(self) -> int:
        return -(-len(self._parent) // 2)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        epoch, position = divmod(index, len(self))
        return self._parent[epoch * len(self._parent) + 2 * position]


def _keep(element: int) -> bool:
    return element % 5 != 2


def _fails_for_some(element: int) -> int:
    if element % 6 == 3:
        raise ValueError(element)
    return element


def _the_same_one(error: Exception, record: Any) -> int:
    return int(error.args[0])


_POLICIES: list[Any] = ["skip", "replace", _the_same_one]


def _tolerant(ds: Any, policy: Any) -> Any:
    return ds.map(_fails_for_some).on_error(policy, budget=None, consecutive=None)


def _interleaved(ds: Any) -> Any:
    if tolerates(ds):
        return ds  # `on_error` comes after the interleave.
    return X.InterleaveIterDataset([ds, source("b", 8), ds], cycle_length=2)


def _bucketed(ds: Any, remainder: Any) -> Any:
    sizes = {"batch_sizes": [3, 2], "remainder": remainder}
    return ds.map(_tokens).bucket("x", [2, 4], **sizes)


def _same(element: Any) -> Any:
    return element


def _drawn(element: Any, rng: np.random.Generator) -> Any:
    rng.integers(10)
    return element


def _tokens(element: int) -> dict[str, Any]:
    return {"x": np.full(1 + element % 4, element)}


_BY_INDEX: list[Callable[[Any, int], Any]] = [
    lambda ds, seed: ds.shuffle(seed=seed),
    lambda ds, seed: X.WindowShuffleMapDataset(ds, window_size=1 + seed % 7, seed=seed),
    lambda ds, seed: ds.map(_same),
    lambda ds, seed: ds.map_with_index(lambda _, x: x),
    lambda ds, seed: ds.random_map(_drawn, seed=seed),
    lambda ds, seed: ds.filter(_keep),
    lambda ds, seed: ds[seed % 3 :: 1 + seed % 2],
    lambda ds, seed: ds.slice([1, 0, 3, 3]).repeat(2),
    lambda ds, seed: ds.repeat(2, reseed_each_epoch=bool(seed % 2)),
    lambda ds, seed: X.FlatMapMapDataset(ds, Copies()),
    lambda ds, seed: EveryOther(ds),
    lambda ds, seed: ds if ds.sparse or tolerates(ds) else wg.MapDataset.source(ds),
    lambda ds, seed: ds.shard(wg.sharding.ShardOptions(seed % 2, 2), remainder="keep"),
    lambda ds, seed: wg.MapDataset.mix([ds, source("b", 9 + seed % 9)], [1, 1 + seed % 3]),
    lambda ds, seed: wg.MapDataset.concatenate([source("c", 3), ds]),
    lambda ds, seed: _tolerant(ds, _POLICIES[seed % 3]),
]

_IN_ORDER: list[Callable[[Any, int], Any]] = [
    lambda ds, seed: ds.map(_same),
    lambda ds, seed: ds.map_with_index(lambda _, x: x),
    lambda ds, seed: ds.random_map(_drawn, seed=seed),
    lambda ds, seed: ds.filter(_keep),
    lambda ds, seed: X.WindowShuffleIterDataset(ds, window_size=1 + seed % 7, seed=seed),
    lambda ds, seed: X.FlatMapIterDataset(ds, Copies()),
    lambda ds, seed: X.RepeatIterDataset(X.LimitIterDataset(ds, 3 + seed % 9), 2),
    lambda ds, seed: X.RepeatIterDataset(X.CacheIterDataset(X.LimitIterDataset(ds, 7)), 2),
    lambda ds, seed: X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=1 + seed % 4),
    lambda ds, seed: wg.IterDataset.mix({"x": ds, "y": source("c", 20)}, {"x": 2, "y": 1}),
    lambda ds, seed: _interleaved(ds),
    lambda ds, seed: X.InterleaveIterDataset(
        wg.MapDataset.range(3).map(lambda n: source("b", 2 + n)), cycle_length=2
    ),
    lambda ds, seed: _tolerant(ds, "skip"),
]

_LAST: list[Callable[[Any], Any]] = [
    lambda ds: ds,
    lambda ds: ds.batch(3),
    lambda ds: ds.batch(2, drop_remainder=True).batch(2, drop_remainder=True),
    lambda ds: X.RebatchIterDataset(ds.batch(3), 2),
    lambda ds: X.ZipIterDataset([ds, X.WindowShuffleIterDataset(ds, window_size=4, seed=1)]),
    lambda ds: _packed(ds),
    lambda ds: X.BestFitPackIterDataset(
        ds.map(_tokens), length_struct={"x": 6}, num_packing_bins=3
    ),
    lambda ds: _packed(ds).batch(2),
    lambda ds: X.ConcatThenSplitIterDataset(ds.map(_tokens), length_struct={"x": 5}),
    lambda ds: _bucketed(ds, "pad"),
    lambda ds: X.ThreadPrefetchIterDataset(_bucketed(ds, "drop"), prefetch_buffer_size=2),
]


def _packed(ds: Any) -> Any:
    return X.FirstFitPackIterDataset(ds.map(_tokens), length_struct={"x": 6}, num_packing_bins=3)


def indexable(choose: random.Random) -> Any:
    """Return a MapDataset of ids."""
    ds: Any = source("a", 6 + choose.randrange(24))
    for _ in range(choose.randrange(4)):
        after = choose.choice(_BY_INDEX)(ds, choose.randrange(100))
        if 4 <= len(after) < 300:
            ds = after
    return ds


def random_pipeline(seed: int, run: Callable[[random.Random, Any], Any]) -> Any:
    """Return an IterDataset of ids, or of what they were made into.

    Args:
        seed: Chooses the pipeline.
        run: Puts the pipeline into workers.
    """
    choose = random.Random(seed)
    ds = indexable(choose)
    if not ds.sparse and choose.random() < 0.2:
        return run(choose, ds.batch(3).to_iter_dataset())
    ds = ds.to_iter_dataset(choose.choice([wg.ReadOptions(0, 0), wg.ReadOptions(2, 5)]))
    for _ in range(choose.randrange(4)):
        ds = choose.choice(_IN_ORDER)(ds, choose.randrange(100))
    ds = choose.choice(_LAST)(ds)
    return run(choose, ds)
