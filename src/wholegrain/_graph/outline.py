"""A pipeline in a few words: a line for each stage, and how many elements it has."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

_FEWEST_TO_FOLD = 5


class Shown:
    """What a dataset says of itself, in a terminal and in a notebook."""

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

    def _repr_html_(self) -> str:
        text: str = importlib.import_module("wholegrain._observe.explain").to_html(self)
        return text


def label(dataset: Any) -> str:
    """Return what a stage does, as its user would call it: `map(decode)`, `batch(32)`."""
    try:
        return _label(dataset)
    except Exception:  # Half made, or a class of the user's with one of our names.
        return type(dataset).__name__


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
            return f"slice{str(dataset).removeprefix(kind)}"
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
    """Return how many elements a MapDataset has; None if it is not known, or there is no end."""
    try:
        found = len(dataset)
    except Exception:
        return None
    return None if found >= sys.maxsize else found


def inputs(dataset: Any) -> Sequence[Any]:
    """Return the datasets that a stage reads from, as far as they are known before it runs."""
    parents: Sequence[Any] = getattr(dataset, "parents", ())
    if not parents and isinstance(getattr(dataset, "datasets", None), (list, tuple)):
        return dataset.datasets  # type: ignore[no-any-return]
    return parents


def tree(dataset: Any) -> str:
    """Return a pipeline as a small tree with lengths, the output first."""
    return "\n".join(_lines(dataset, "", ""))


def _lines(dataset: Any, first: str, rest: str) -> Iterator[str]:
    count = length(dataset) if hasattr(type(dataset), "__len__") else None
    text = f"{first}{label(dataset)}"
    yield text if count is None else f"{text}  [{count:,}]"
    behind = inputs(dataset)
    shown = behind if len(behind) < _FEWEST_TO_FOLD else behind[:2]
    if len(behind) == 1:
        yield from _lines(behind[0], rest, rest) if len(rest) else _chain(behind[0])
        return
    for number, parent in enumerate(shown):
        last = number == len(behind) - 1
        yield from _lines(
            parent, f"{rest}{'└' if last else '├'}─ ", f"{rest}{' ' if last else '│'}  "
        )
    if len(shown) < len(behind):
        yield f"{rest}└─ and {len(behind) - len(shown)} more"


def _chain(dataset: Any) -> Iterator[str]:
    yield from _lines(dataset, "", "")


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
