"""Random pipelines, made by hypothesis."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import wholegrain as wg

X: Any = wg.experimental
Draw = Callable[[st.SearchStrategy[Any]], Any]

_SEEDS = st.sampled_from([0, 1, 7, 2**31, 2**32 - 2, 2**32 - 1])


class Failed(Exception):
    """Raised by functions that fail on purpose."""


def digest(element: Any) -> int:
    """Return a number that depends on everything in an element."""
    return zlib.crc32(repr(element).encode())


def fails_for_some(element: Any) -> Any:
    if digest(element) % 7 == 0:
        raise Failed(digest(element))
    return element


class Parts(wg.transforms.FlatMap):
    """Splits an element into up to `max_fan_out` parts."""

    def __init__(self, max_fan_out: int) -> None:
        self.max_fan_out = max_fan_out

    def flat_map(self, element: Any) -> Sequence[Any]:
        return [(element, part) for part in range(digest(element) % (self.max_fan_out + 1))]


class Table(wg.transforms.DatasetSelectionMap):
    """A selection map out of a list."""

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self._places[index % len(self._places)]


class Plain(wg.MapDataset[Any]):
    """A dataset of the user's, with `__getitem__` alone."""

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        return self._parent[index]


class Bulk(Plain):
    """Another, which reads many at once and returns a tuple."""

    def _getitems(self, indices: Sequence[int]) -> Sequence[Any]:
        return tuple(self[index] for index in indices)


def _with_noise(element: Any, rng: np.random.Generator) -> Any:
    return element, int(rng.integers(1000, dtype=np.uint32)), float(rng.normal())


def _length_of(ds: Any) -> int:
    return len(ds)


def _is_short(ds: Any) -> bool:
    return _length_of(ds) < 500


@st.composite
def _sources(draw: Draw) -> Any:
    length = draw(st.one_of(st.integers(0, 3), st.integers(1, 12), st.integers(24, 48)))
    match draw(st.sampled_from(["range", "list", "dicts", "array", "rows", "strings", "long"])):
        case "range":
            start, step = draw(st.integers(-5, 5)), draw(st.sampled_from([1, 2, -3]))
            return wg.MapDataset.range(start, start + step * length, step)
        case "list":
            return wg.MapDataset.source([7 * i % 11 for i in range(length)])
        case "dicts":
            elements = [{"x": np.arange(2) + i, "y": float(i)} for i in range(length)]
            return wg.MapDataset.source(elements)
        case "array":
            return wg.MapDataset.source(np.arange(length, dtype=np.int16))
        case "rows":
            return wg.MapDataset.source(np.arange(2 * length).reshape(length, 2))
        case "long":
            return wg.MapDataset.range(draw(st.sampled_from([2**16, 2**16 + 1, 10**7, 2**40])))
    return wg.MapDataset.source([f"{i:b}" for i in range(length)])


_MAP_STAGES: dict[str, Callable[[Draw, Any], Any]] = {
    "map": lambda _, ds: ds.map(lambda x: (x, 1)),
    "map to None": lambda _, ds: ds.map(lambda x: None if digest(x) % 3 == 0 else x),
    "map_with_index": lambda _, ds: ds.map_with_index(lambda i, x: (i, x)),
    "random_map": lambda draw, ds: ds.random_map(_with_noise, seed=draw(_SEEDS)),
    "seeded random_map": lambda draw, ds: ds.seed(draw(_SEEDS)).random_map(_with_noise),
    "filter": lambda _, ds: ds.filter(lambda x: digest(x) % 4 != 0),
    "seed": lambda draw, ds: ds.seed(draw(_SEEDS)),
    "shuffle": lambda draw, ds: ds.shuffle(seed=draw(_SEEDS)),
    "windows": lambda draw, ds: X.WindowShuffleMapDataset(
        ds, window_size=draw(st.integers(1, 20)), seed=draw(_SEEDS)
    ),
    "slice": lambda draw, ds: ds[
        draw(st.none() | st.integers(-9, 9)) : draw(st.none() | st.integers(-9, 9)) : draw(
            st.sampled_from([None, 1, 2, -1, -3])
        )
    ],
    "indices": lambda draw, ds: ds.slice(draw(st.lists(st.integers(-30, 60), max_size=6))),
    "repeat": lambda draw, ds: (
        ds
        if _length_of(ds) > 2**50
        else ds.repeat(draw(st.none() | st.integers(1, 3)), reseed_each_epoch=draw(st.booleans()))
    ),
    "batch": lambda draw, ds: (
        ds if ds.sparse else ds.batch(draw(st.integers(1, 5)), drop_remainder=draw(st.booleans()))
    ),
    "batch_fn": lambda draw, ds: (
        ds if ds.sparse else ds.batch(draw(st.integers(1, 5)), batch_fn=list)
    ),
    "flat map": lambda draw, ds: X.FlatMapMapDataset(ds, Parts(draw(st.integers(1, 3)))),
    "source": lambda _, ds: wg.MapDataset.source(ds),
    "plain": lambda _, ds: Plain(ds),
    "bulk": lambda _, ds: Bulk(ds),
    "zip": lambda draw, ds: X.ZipMapDataset([ds, draw(st.sampled_from([ds, ds.map(digest)]))]),
    "concatenate": lambda draw, ds: wg.MapDataset.concatenate(
        [part for part in _others(draw, ds) if _length_of(part) < 2**50]
    ),
    "mix": lambda draw, ds: _mixed(draw, [p for p in _others(draw, ds) if _length_of(p)]),
    "select": lambda draw, ds: _selected(draw, [p for p in _others(draw, ds) if _length_of(p)]),
    "failing map": lambda _, ds: ds.map(fails_for_some),
}


def _others(draw: Draw, ds: Any) -> list[Any]:
    others = [draw(_sources()) for _ in range(draw(st.integers(0, 2)))]
    place = draw(st.integers(0, len(others)))
    return [*others[:place], ds, *others[place:]]


def _mixed(draw: Draw, parts: list[Any]) -> Any:
    weight = st.sampled_from([0.1, 0.25, 0.3, 1, 2, 3.7, 1000.01])
    weights = draw(st.none() | st.lists(weight, min_size=len(parts), max_size=len(parts)))
    return wg.MapDataset.mix(parts, weights) if parts else wg.MapDataset.range(1)


def _selected(draw: Draw, parts: list[Any]) -> Any:
    if not parts:
        return wg.MapDataset.range(1)
    place = st.tuples(st.integers(0, len(parts) - 1), st.integers(0, 40))
    return wg.MapDataset.select_from_datasets(
        parts, Table(draw(st.lists(place, min_size=1, max_size=8)))
    )


@st.composite
def map_datasets(draw: Draw, failing: bool = False) -> Any:
    """Draw a MapDataset of up to six stages."""
    ds = draw(_sources())
    names = [name for name in _MAP_STAGES if failing or name != "failing map"]
    for _ in range(draw(st.integers(0, 6))):
        ds = _MAP_STAGES[draw(st.sampled_from(names))](draw, ds)
    return ds


_ITER_STAGES: dict[str, Callable[[Draw, Any], Any]] = {
    "map": lambda _, ds: ds.map(lambda x: (x, 1)),
    "map to None": lambda _, ds: ds.map(lambda x: None if digest(x) % 3 == 0 else x),
    "map_with_index": lambda _, ds: ds.map_with_index(lambda i, x: (i, x)),
    "random_map": lambda draw, ds: ds.random_map(_with_noise, seed=draw(_SEEDS)),
    "filter": lambda draw, ds: ds.filter(_keeps(draw(st.sampled_from([2, 4])))),
    "seed": lambda draw, ds: ds.seed(draw(_SEEDS)),
    "options": lambda _, ds: X.WithOptionsIterDataset(
        ds, X.DatasetOptions(filter_warn_threshold_ratio=None)
    ),
    "batch": lambda draw, ds: ds.batch(
        draw(st.integers(1, 4)), drop_remainder=draw(st.booleans()), batch_fn=list
    ),
    "limit": lambda draw, ds: X.LimitIterDataset(ds, draw(st.integers(1, 20))),
    "repeat": lambda draw, ds: X.RepeatIterDataset(ds, draw(st.integers(1, 2))),
    "windows": lambda draw, ds: X.WindowShuffleIterDataset(
        ds, window_size=draw(st.integers(1, 6)), seed=draw(_SEEDS)
    ),
    "flat map": lambda draw, ds: X.FlatMapIterDataset(ds, Parts(draw(st.integers(1, 3)))),
    "zip": lambda _, ds: X.ZipIterDataset([ds, ds.map(digest)]),
    "mix": lambda draw, ds: wg.IterDataset.mix([ds, draw(_sources())[:20].to_iter_dataset()]),
    "interleave": lambda draw, ds: X.InterleaveIterDataset(
        [ds, draw(_sources())[:20], ds], cycle_length=draw(st.integers(1, 3))
    ),
    "failing map": lambda _, ds: ds.map(fails_for_some),
}


def _keeps(one_in: int) -> Callable[[Any], bool]:
    return lambda element: digest(element) % one_in != 0


@st.composite
def iter_datasets(draw: Draw, failing: bool = False) -> Any:
    """Draw an IterDataset that ends."""
    ds = draw(map_datasets(failing))[:40]
    options = draw(st.sampled_from([wg.ReadOptions(0), wg.ReadOptions(0), wg.ReadOptions(2, 3)]))
    ds = ds.to_iter_dataset(options, allow_nones=draw(st.booleans()))
    names = [name for name in _ITER_STAGES if failing or name != "failing map"]
    for _ in range(draw(st.integers(0, 5))):
        ds = _ITER_STAGES[draw(st.sampled_from(names))](draw, ds)
    return ds
