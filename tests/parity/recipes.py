"""Pipelines as plain data, which either package can build."""

import dataclasses
import types
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An operation, its arguments, and the recipes of what it reads from."""

    op: str
    args: dict[str, Any]
    parents: tuple["Recipe", ...] = ()

    def __repr__(self) -> str:
        args = [f"{name}={value!r}" for name, value in self.args.items()]
        if len(self.parents) == 1:
            return f"{self.parents[0]!r}.{self.op}({', '.join(args)})"
        if self.parents:
            args.insert(0, repr(list(self.parents)))
        return f"{self.op}({', '.join(args)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # In hypothesis's reports.

    def contains(self, op: str, **args: Any) -> bool:
        """Say whether `op` stands anywhere in the recipe, with these arguments."""
        here = self.op == op and all(self.args[name] == value for name, value in args.items())
        return here or any(parent.contains(op, **args) for parent in self.parents)


def build(package: types.ModuleType, recipe: Recipe) -> Any:
    """Make the dataset with `package`, Grain or wholegrain."""
    parents = [build(package, parent) for parent in recipe.parents]
    if recipe.op in _JOINING:
        return _JOINING[recipe.op](package, parents, **recipe.args)
    return _STAGES[recipe.op](package, *parents, **recipe.args)


# What user functions do to elements. They take elements of every kind, so that stages can
# follow each other in any order.


def bump(element: Any) -> Any:
    """Change every leaf a little; the structure stays."""
    if isinstance(element, dict):
        return {key: bump(value) for key, value in element.items()}
    if isinstance(element, (list, tuple)):
        return type(element)(bump(value) for value in element)
    if element is None:
        return None
    if isinstance(element, str):
        return element + "!"
    if isinstance(element, np.ndarray) and element.dtype.kind in "OU":
        return element[::-1].copy() if element.ndim else element
    return element + 1


def digest(element: Any) -> int:
    """Return a number that depends on everything in an element."""
    return zlib.crc32(repr(element).encode())


def keep_most(element: Any) -> bool:
    return digest(element) % 4 != 0


def keep_few(element: Any) -> bool:
    return digest(element) % 4 == 0


def none_for_some(element: Any) -> Any:
    return None if digest(element) % 3 == 0 else element


def with_index(index: int, element: Any) -> Any:
    return index, element


def with_noise(element: Any, rng: np.random.Generator) -> Any:
    return element, int(rng.integers(1000)), float(rng.normal())


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (bump, keep_most, keep_few, none_for_some)
}


def list_source(kind: str, length: int) -> list[Any]:
    """Return elements of a kind."""
    match kind:
        case "ints":
            return [7 * i % 11 for i in range(length)]
        case "strings":
            return ["abcdefgh"[: 1 + i % 3] + str(i) for i in range(length)]
        case "floats":
            return [i / 4 for i in range(length)]
        case "dicts":
            return [
                {"x": np.arange(3, dtype=np.int32) + i, "y": np.float32(i), "s": f"s{i}"}
                for i in range(length)
            ]
    raise ValueError(kind)


def _flat_map(package: types.ModuleType, fan_out: int) -> Any:
    class Parts(package.experimental.FlatMapTransform):  # type: ignore[misc, name-defined]
        max_fan_out = fan_out

        def flat_map(self, element: Any) -> list[Any]:
            return [(element, part) for part in range(digest(element) % (fan_out + 1))]

    return Parts()


def _selection(package: types.ModuleType, table: list[tuple[int, int]]) -> Any:
    class Selection(package.transforms.DatasetSelectionMap):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return len(table)

        def __getitem__(self, index: int) -> tuple[int, int]:
            return table[index % len(table)]

    return Selection()


def _to_iter(
    package: types.ModuleType, ds: Any, options: tuple[int, int] | None, allow_nones: bool
) -> Any:
    read_options = None
    if options is not None:
        read_options = package.ReadOptions(num_threads=options[0], prefetch_buffer_size=options[1])
    return ds.to_iter_dataset(read_options, allow_nones=allow_nones)


def _iter_mix(package: types.ModuleType, datasets: list[Any], weights: Any, named: bool) -> Any:
    if not named:
        return package.IterDataset.mix(datasets, weights)
    names = "abcdefgh"[: len(datasets)]
    named_weights = None if weights is None else dict(zip(names, weights, strict=True))
    return package.IterDataset.mix(dict(zip(names, datasets, strict=True)), named_weights)


# Sources, and stages that read from one dataset. Those of Map and of Iter datasets that share a
# name share a line.
_STAGES: dict[str, Callable[..., Any]] = {
    "range": lambda g, start, stop, step: g.MapDataset.range(start, stop, step),
    "source": lambda g, kind, length: g.MapDataset.source(list_source(kind, length)),
    "map": lambda _, ds, function: ds.map(_FUNCTIONS[function]),
    "filter": lambda _, ds, function: ds.filter(_FUNCTIONS[function]),
    "map_with_index": lambda _, ds: ds.map_with_index(with_index),
    "random_map": lambda _, ds, seed: ds.random_map(with_noise, seed=seed),
    "seed": lambda _, ds, seed: ds.seed(seed),
    "batch": lambda _, ds, size, drop_remainder: ds.batch(size, drop_remainder=drop_remainder),
    "batch_to_list": lambda _, ds, size: ds.batch(size, batch_fn=list),
    "shuffle": lambda _, ds, seed: ds.shuffle(seed),
    "slice": lambda _, ds, start, stop, step: ds[start:stop:step],
    "repeat": lambda _, ds, epochs, reseed: ds.repeat(epochs, reseed_each_epoch=reseed),
    "map_window_shuffle": lambda g, ds, window, seed: g.experimental.WindowShuffleMapDataset(
        ds, window_size=window, seed=seed
    ),
    "map_flat_map": lambda g, ds, fan_out: g.experimental.FlatMapMapDataset(
        ds, _flat_map(g, fan_out)
    ),
    "to_iter_dataset": _to_iter,
    "flat_map": lambda g, ds, fan_out: g.experimental.FlatMapIterDataset(ds, _flat_map(g, fan_out)),
    "rebatch": lambda g, ds, size, drop_remainder: g.experimental.RebatchIterDataset(
        ds, size, drop_remainder
    ),
    "window_shuffle": lambda g, ds, window, seed: g.experimental.WindowShuffleIterDataset(
        ds, window_size=window, seed=seed
    ),
    "iter_repeat": lambda g, ds, epochs: g.experimental.RepeatIterDataset(ds, epochs),
    "limit": lambda g, ds, count: g.experimental.LimitIterDataset(ds, count),
    "cache": lambda g, ds: g.experimental.CacheIterDataset(ds),
    "with_options": lambda g, ds: g.experimental.WithOptionsIterDataset(
        ds, g.experimental.DatasetOptions(filter_warn_threshold_ratio=None)
    ),
    "thread_prefetch": lambda g, ds, size: g.experimental.ThreadPrefetchIterDataset(
        ds, prefetch_buffer_size=size
    ),
    "multithread_prefetch": lambda g, ds, threads, size, sequential: (
        g.experimental.multithread_prefetch(ds, threads, size, sequential)
    ),
}

# Stages that read from several datasets.
_JOINING: dict[str, Callable[..., Any]] = {
    "mix": lambda g, parents, weights: g.MapDataset.mix(parents, weights),
    "concatenate": lambda g, parents: g.MapDataset.concatenate(parents),
    "select": lambda g, parents, table: g.MapDataset.select_from_datasets(
        parents, _selection(g, table)
    ),
    "map_zip": lambda g, parents: g.experimental.ZipMapDataset(parents),
    "iter_zip": lambda g, parents, strict: g.experimental.ZipIterDataset(parents, strict=strict),
    "iter_mix": _iter_mix,
    "interleave": lambda g, parents, cycle_length: g.experimental.InterleaveIterDataset(
        parents, cycle_length=cycle_length
    ),
}
