"""Builds drawn pipelines: with a library, or as one plain loop."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipelines import elements
from pipelines.draw import Step


def has_workers(steps: list[Step]) -> bool:
    return any(step[0] == "workers" or (step[0] == "load" and step[2]) for step in steps)


def build(grain: Any, steps: list[Step]) -> Any:
    """Return the dataset or DataLoader that the steps describe."""
    ds: Any = None
    for number, (name, *arguments) in enumerate(steps):
        if name == "loader":
            return _loader(grain, steps[0], arguments, steps[number + 1 :])
        ds = _STEPS[name](grain, ds, *arguments)
    return ds


def _options(grain: Any, options: Any) -> Any:
    if options is None:
        return None
    return grain.ReadOptions(num_threads=options[0], prefetch_buffer_size=options[1])


def _twice(grain: Any) -> Any:
    class Twice(grain.experimental.FlatMapTransform):  # type: ignore[misc, name-defined]
        max_fan_out = 2

        def flat_map(self, element: Any) -> list[Any]:
            return [element, element]

    return Twice()


def _pack(grain: Any, ds: Any, how: str) -> Any:
    if how == "concat":
        return grain.experimental.ConcatThenSplitIterDataset(ds, length_struct={"tokens": 512})
    name = {"first": "FirstFitPackIterDataset", "best": "BestFitPackIterDataset"}[how]
    pack = getattr(grain.experimental, name)
    return pack(ds, length_struct={"tokens": 512}, num_packing_bins=16)


def _workers(grain: Any, ds: Any, count: int) -> Any:
    return ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=count))


_STEPS: dict[str, Callable[..., Any]] = {
    "range": lambda g, _, length: g.MapDataset.range(length),
    "source": lambda g, _, *what: g.MapDataset.source(elements.source_of(*what)),
    "shuffle": lambda _, ds, seed: ds.shuffle(seed=seed),
    "map": lambda _, ds, kind: ds.map(elements.MAPS[kind]),
    "to_dict": lambda _, ds: ds.map(elements.to_dict),
    "filter": lambda _, ds, kind: ds.filter(elements.keeps(kind)),
    "random_map": lambda _, ds, kind, seed: ds.random_map(elements.noise(kind), seed=seed),
    "map_with_index": lambda _, ds: ds.map_with_index(elements.with_index),
    "slice": lambda _, ds, start, step: ds[start::step],
    "repeat": lambda _, ds, epochs: ds.repeat(epochs),
    "batch": lambda _, ds, kind, size: ds.batch(size, drop_remainder=True),
    "mix": lambda g, _, parts, weights: g.MapDataset.mix([build(g, p) for p in parts], weights),
    "concatenate": lambda g, ds, parts: g.MapDataset.concatenate(
        [ds, *[build(g, part) for part in parts]]
    ),
    "map_windows": lambda g, ds, size, seed: g.experimental.WindowShuffleMapDataset(
        ds, window_size=size, seed=seed
    ),
    "iter": lambda g, ds, options: ds.to_iter_dataset(_options(g, options)),
    "windows": lambda g, ds, size, seed: g.experimental.WindowShuffleIterDataset(
        ds, window_size=size, seed=seed
    ),
    "flat_map": lambda g, ds: g.experimental.FlatMapIterDataset(ds, _twice(g)),
    "interleave": lambda g, ds, count: g.experimental.InterleaveIterDataset(
        [ds] * count, cycle_length=2
    ),
    "zip": lambda g, ds: g.experimental.ZipIterDataset([ds, ds]),
    "pack": _pack,
    "thread_prefetch": lambda g, ds, size: g.experimental.ThreadPrefetchIterDataset(
        ds, prefetch_buffer_size=size
    ),
    "multithread_prefetch": lambda g, ds, threads, size: g.experimental.multithread_prefetch(
        ds, threads, size
    ),
    "workers": _workers,
}


def _loader(grain: Any, source: Step, arguments: list[Any], steps: list[Step]) -> Any:
    shuffle, epochs, seed = arguments
    (_, options, workers), length = steps[-1], source[2]
    return grain.DataLoader(
        data_source=elements.source_of(*source[1:]),
        sampler=grain.samplers.IndexSampler(length, shuffle=shuffle, num_epochs=epochs, seed=seed),
        operations=[_operation(grain, *step) for step in steps[:-1]],
        worker_count=workers,
        read_options=_options(grain, options),
    )


def _operation(grain: Any, name: str, *arguments: Any) -> Any:
    if name == "batch":
        return grain.transforms.Batch(batch_size=arguments[1], drop_remainder=True)
    library = importlib.import_module(f"pipelines.operations_{grain.__name__}")
    kind = arguments[0]
    if name == "map":
        return library.Map(elements.MAPS[kind])
    if name == "filter":
        return library.Filter(elements.keeps(kind))
    return library.RandomMap(elements.noise(kind))


# The plain loop.


class _Code:
    """Lines of a function, each stage nested in the one before."""

    def __init__(self) -> None:
        self.lines = ["def run():"]
        self.values: dict[str, Any] = {"np": np}
        self.depth = 1
        self._names = itertools.count()

    def add(self, line: str, deeper: bool = False, **values: Any) -> None:
        self.lines.append("    " * self.depth + line)
        self.values.update(values)
        self.depth += deeper

    def first(self, line: str) -> None:
        self.lines.insert(1, "    " + line)

    def name(self) -> str:
        return f"v{next(self._names)}"


def plain_loop(steps: list[Step]) -> Callable[[], Iterator[Any]] | None:
    """Return a function that does the same work in one loop; None if some step has no such form.

    What orders elements is prepared: a shuffled source is walked along a list.
    """
    code, has_element = _Code(), False
    for place, (name, *arguments) in enumerate(steps):
        if name in ("iter", "thread_prefetch", "repeat", "load"):
            continue
        if name in ("range", "source", "mix"):
            if not _start(code, name, arguments, steps[place + 1 :]):
                return None
            has_element = True
        elif name in ("shuffle", "slice", "loader"):
            continue  # Is in the order in which the source is walked.
        elif not has_element or not _stage(code, name, arguments):
            return None
    code.add("yield x")
    exec(compile("\n".join(code.lines), "<plain loop>", "exec"), code.values)
    run: Callable[[], Iterator[Any]] = code.values["run"]
    return run


def _start(code: _Code, name: str, arguments: list[Any], later: list[Step]) -> bool:
    names = [step[0] for step in later]
    if name == "mix":
        parts, weights = arguments
        loops = [plain_loop(part) for part in parts]
        if None in loops or "shuffle" in names or "slice" in names:
            return False
        weights = weights or [1] * len(parts)
        picks = [k % len(parts) for k in range(997)]
        code.add("parts = [endless(loop) for loop in loops]", loops=loops, endless=elements.endless)
        code.add("for pick in cycle(picks):", True, picks=picks, cycle=itertools.cycle)
        code.add("x = next(parts[pick])")
        return True
    length = arguments[0] if name == "range" else arguments[1]
    loader = next((step for step in later if step[0] == "loader"), None)
    if ["repeat", None] in [list(step) for step in later] or (loader is not None and not loader[2]):
        code.add("while True:", True)
    elif any(step[0] == "windows" and 2 * step[1] > length for step in later):
        return False  # The last window is not full: the loop would have to care.
    order: Any = range(length)
    if "slice" in names:
        if "batch" in names and names.index("batch") < names.index("slice"):
            return False
        order = order[1::3]
    if "shuffle" in names or (loader is not None and loader[1]):
        if "batch" in names and "shuffle" in names[names.index("batch") :]:
            return False
        order = np.random.default_rng(1).integers(0, length, min(len(order), 200_000)).tolist()
    if name == "range":
        code.add("for x in order:", True, order=order)
        return True
    source = elements.source_of(*arguments)
    if type(source) is list and order == range(length):
        code.add("for x in source:", True, source=source)
    else:
        code.add("for i in order:", True, order=order, source=source)
        code.add("x = source[i]")
    return True


def _stage(code: _Code, name: str, arguments: list[Any]) -> bool:
    v = code.name()
    match name:
        case "map":
            code.add(f"x = {v}(x)", **{v: elements.MAPS[arguments[0]]})
        case "to_dict":
            code.add(f"x = {v}(x)", **{v: elements.to_dict})
        case "map_with_index":
            code.first(f"n{v} = -1")
            code.add(f"n{v} += 1")
            code.add(f"x = {v}(n{v}, x)", **{v: elements.with_index})
        case "filter":
            code.add(f"if not {v}(x): continue", **{v: elements.keeps(arguments[0])})
        case "random_map":
            rng = np.random.Generator(np.random.Philox(1))
            code.add(f"x = {v}(x, rng)", **{v: elements.noise(arguments[0]), "rng": rng})
        case "flat_map":
            code.add(f"for x in {v}(x):", True, **{v: elements.twice})
        case "batch":
            code.first(f"b{v} = []")
            code.add(f"b{v}.append(x)")
            code.add(f"if len(b{v}) < {arguments[1]}: continue")
            code.add(f"x = {v}(b{v}); b{v} = []", **{v: elements.stacker(arguments[0])})
        case "windows" | "map_windows":
            code.first(f"b{v} = []")
            code.add(f"b{v}.append(x)")
            code.add(f"if len(b{v}) < {arguments[0]}: continue")
            code.add(f"w{v} = b{v}; b{v} = []; shuffle(w{v})", shuffle=_shuffle)
            code.add(f"for x in w{v}:", True)
        case _:
            return False
    return True


def _shuffle(window: list[Any]) -> None:
    order = np.random.default_rng(1).permutation(len(window)).tolist()
    window[:] = [window[place] for place in order]
