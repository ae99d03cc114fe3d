"""A pipeline in a few words: a line for each stage, and how many elements it has."""

from __future__ import annotations

import copy
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

_FEWEST_TO_FOLD = 5
_LONGEST_LINE = 80
_LONGEST_PATH = 40

_SURELY_INFINITE = 2**40
"""A part of an infinite dataset with more elements than that was not cut off by anybody."""


class Shown:
    """What a dataset says of itself, in a terminal and in a notebook."""

    _shown_name: str | None = None

    def named(self, name: str) -> Self:
        """Return the same dataset under a name, which reports, `repr` and `explain()` show.

        Elements, seeds, states and checkpoints do not depend on names.

        Example:
            >>> train = MapDataset.source(files).named("train files").map(decode)
        """
        given: object = name
        if not (isinstance(given, str) and given.strip()):
            raise ValueError(f"The name of a stage is a text that is not empty, but got {name!r}.")
        clone = copy.copy(self)
        clone._shown_name = name
        return clone

    def explain(self) -> str:
        """Say what runs where in this pipeline: threads, workers, chunks, seeds, in words.

        Example:
            >>> print(ds.explain())
        """
        # It stands above: imports point down.
        text: str = importlib.import_module("wholegrain._observe.explain").explain(self)
        return text

    def __repr__(self) -> str:
        return tree(self)

    def _plain_repr(self) -> str:
        """Return `repr(self)` without the names that the user gave to stages."""
        is_ours = type(self).__repr__ is Shown.__repr__
        return tree(self, plain_label) if is_ours else repr(self)

    def _repr_html_(self) -> str:
        text: str = importlib.import_module("wholegrain._observe.explain").to_html(self)
        return text


def label(dataset: Any) -> str:
    """Return what a stage does, as its user would call it: `map(decode)`, `batch(32)`.

    The name that the user gave it comes first, and a source says which files it reads.
    """
    text = plain_label(dataset)
    name = getattr(dataset, "_shown_name", None)
    try:
        files = _files(getattr(dataset, "source", dataset))
    except Exception:  # A class of the user's with names of ours.
        files = ""
    if files:
        text = f"{text[:-1]}: {files})" if text.endswith(")") else f"{text}({files})"
    if isinstance(name, str):
        text = f"{name}: {text}"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain_label(dataset: Any) -> str:
    """Return what a stage does, without its name: alike for stages that do the same."""
    try:
        return _label(dataset)
    except Exception:  # Half made, or a class of the user's with one of our names.
        return type(dataset).__name__


def _files(source: Any) -> str:
    """Return which files one of our sources reads, shortened."""
    if not type(source).__module__.startswith("wholegrain."):
        return ""
    paths = source._shown_paths
    more = f" + {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{_short_path(paths[0])}{more}" if paths else ""


def _short_path(path: str) -> str:
    """Return the end of a path: folders tell files of the same name apart."""
    if "://" in path:
        path = path.partition("?")[0]  # There may be credentials in the rest.
    short = "/".join(path.rstrip("/").rsplit("/", 2)[-2:])
    if len(short) <= _LONGEST_PATH:
        return short
    return f"{short[: _LONGEST_PATH // 3]}…{short[-_LONGEST_PATH * 2 // 3 :]}"


def _label(dataset: Any) -> str:
    kind = type(dataset).__name__
    transform = getattr(dataset, "_transform", None)
    name = kind.removesuffix("MapDataset").removesuffix("IterDataset").removesuffix("Dataset")
    match name:
        case "Map" | "Filter" | "RandomMap" | "MapWithIndex" | "FlatMap" if transform is not None:
            return f"{_snake(name)}({function_name(transform)})"
        case "Source":
            return f"source({type(dataset.source).__name__})"
        case "Range":
            numbers = [dataset.start, dataset.stop] + [dataset.step] * (dataset.step != 1)
            return f"range({', '.join(map(str, numbers))})"
        case "Batch":
            return f"batch({dataset._batch_size})"
        case "Repeat":
            epochs = getattr(dataset, "_num_epochs", None)
            return "repeat" if epochs is None else f"repeat({epochs})"
        case "Slice":
            return f"slice{str(dataset).removeprefix(kind)}".replace(str(sys.maxsize), "")
        case "Seed":
            return f"seed({dataset.base_seed})"
        case "Prefetch":
            return "to_iter_dataset"
        case "ThreadPrefetch":
            return f"thread prefetch (buffer {dataset._prefetch_buffer_size})"
        case "ProcessPrefetch":
            return f"mp_prefetch ({_count(dataset._num_workers, 'worker')})"
        case "MultithreadPrefetch":
            return f"multithread_prefetch ({_count(dataset._num_workers, 'thread')})"
        case "AutoPrefetch":
            return "mp_prefetch (auto workers)"
        case "Interleave":
            return f"interleave ({_count(len(dataset.datasets), 'dataset')})"
        case "Mixed":
            return f"mix ({_count(len(dataset.parents), 'dataset')})"
        case "WithOptions":
            return "options"
        case "Operation":
            return f"operation({function_name(dataset._operation)})"
    # A class of the user's is known by its own name.
    return _snake(name) if type(dataset).__module__.startswith("wholegrain.") else kind


def function_name(function: Any) -> str:
    """Return what a transformation is called, without where it stands."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        name = function.__name__
        return "lambda" if name == "<lambda>" else name
    given: Any = getattr(function, "__name__", None)
    return given if isinstance(given, str) else type(function).__name__


def length(dataset: Any) -> int | None:
    """Return how many elements a MapDataset has; None if it is not known, or infinite."""
    found = _len(dataset)
    return None if found is None or _is_infinite(dataset, found) else found


def is_infinite(dataset: Any) -> bool:
    """Whether a MapDataset has no end, because of a `repeat()` upstream."""
    found = _len(dataset)
    return found is not None and _is_infinite(dataset, found)


def length_text(dataset: Any) -> str:
    """Return how many elements a MapDataset has, as text: "1,000", "infinite"; "" if unknown."""
    if is_infinite(dataset):
        return "infinite"
    count = length(dataset)
    return "" if count is None else f"{count:,}"


def _is_infinite(dataset: Any, count: int) -> bool:
    if count >= sys.maxsize:
        return True
    # A batch of an infinite dataset has a length, as Grain counts: a part of the largest number.
    return count > _SURELY_INFINITE and any(map(is_infinite, getattr(dataset, "parents", ())))


def _len(dataset: Any) -> int | None:
    try:
        return len(dataset) if hasattr(type(dataset), "__len__") else None
    except Exception:
        return None


def inputs(dataset: Any) -> Sequence[Any]:
    """Return the datasets that a stage reads from, as far as they are known before it runs."""
    parents: Sequence[Any] = getattr(dataset, "parents", ())
    if not parents and isinstance(getattr(dataset, "datasets", None), (list, tuple)):
        return dataset.datasets  # type: ignore[no-any-return]
    return parents


def line(dataset: Any) -> str:
    """Return a pipeline on one line, from the source on; the stages in between if they fit."""
    stages = [label(dataset)]
    above = inputs(dataset)
    while len(above) == 1:
        stages.insert(0, label(above[0]))
        above = inputs(above[0])
    if len(" > ".join(stages)) > _LONGEST_LINE and len(stages) > 2:
        stages = [stages[0], "...", stages[-1]]
    return " > ".join(stages)


def tree(dataset: Any, label: Callable[[Any], str] = label) -> str:
    """Return a pipeline as a small tree with lengths, the output first."""
    return "\n".join(_lines(dataset, "", "", label))


def _lines(dataset: Any, first: str, rest: str, label: Callable[[Any], str]) -> Iterator[str]:
    count = length_text(dataset)
    yield f"{first}{label(dataset)}  [{count}]" if count else f"{first}{label(dataset)}"
    parents = inputs(dataset)
    shown = parents if len(parents) < _FEWEST_TO_FOLD else parents[:2]
    if len(parents) == 1:
        yield from _lines(parents[0], rest, rest, label)
        return
    for number, parent in enumerate(shown):
        last = number == len(parents) - 1
        yield from _lines(
            parent, f"{rest}{'└' if last else '├'}─ ", f"{rest}{' ' if last else '│'}  ", label
        )
    if len(shown) < len(parents):
        yield f"{rest}└─ and {len(parents) - len(shown)} more"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
