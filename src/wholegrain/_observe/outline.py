"""A pipeline as text: one line per stage, with the number of elements."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wholegrain._core.interruption import is_interruption

_FEWEST_TO_FOLD = 5
_LONGEST_LINE = 80
_LONGEST_PATH = 40

_SURELY_INFINITE = 2**40
"""A dataset with more elements than this, downstream of an infinite one, is infinite too."""


def label(dataset: Any) -> str:
    """Return the label of a stage in the terms of the public API: `map(decode)`, `batch(32)`.

    A name given by the user comes first. A source shows which files it reads.
    """
    text = plain_label(dataset)
    name = getattr(dataset, "_shown_name", None)
    try:
        files = _files(getattr(dataset, "source", dataset))
    except Exception as error:  # A class of the user's that uses the same attribute names.
        if is_interruption(error):
            raise
        files = ""
    if files:
        text = f"{text[:-1]}: {files})" if text.endswith(")") else f"{text}({files})"
    if isinstance(name, str):
        text = f"{name}: {text}"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain_label(dataset: Any) -> str:
    """Return the label without the user's name, so that equal stages have equal labels."""
    try:
        return dataset._label()  # type: ignore[no-any-return]
    except Exception as error:  # Partly initialized, or a class of the user's that uses `_label`.
        if is_interruption(error):
            raise
        return type(dataset).__name__


def _files(source: Any) -> str:
    """Return a short text about the files that one of our sources reads."""
    if not type(source).__module__.startswith("wholegrain."):
        return ""
    paths = source._shown_paths
    more = f" + {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{short_path(paths[0])}{more}" if paths else ""


def short_path(path: str) -> str:
    """Return the last two parts of a path, because file names alone may be ambiguous."""
    if "://" in path:
        path = path.partition("?")[0]  # The query string may contain credentials.
    short = "/".join(path.rstrip("/").rsplit("/", 2)[-2:])
    if len(short) <= _LONGEST_PATH:
        return short
    return f"{short[: _LONGEST_PATH // 3]}…{short[-_LONGEST_PATH * 2 // 3 :]}"


def function_name(function: Any) -> str:
    """Return the name of a function or transformation, without its module."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        name = function.__name__
        return "lambda" if name == "<lambda>" else name
    given: Any = getattr(function, "__name__", None)
    return given if isinstance(given, str) else type(function).__name__


def length(dataset: Any) -> int | None:
    """Return the length of a MapDataset; None if it is unknown or infinite."""
    found = _len(dataset)
    return None if found is None or _is_infinite(dataset, found) else found


def is_infinite(dataset: Any) -> bool:
    """Return whether a MapDataset is infinite, because of a `repeat()` upstream."""
    found = _len(dataset)
    return found is not None and _is_infinite(dataset, found)


def length_text(dataset: Any) -> str:
    """Return the length of a MapDataset as text: "1,000", "infinite"; "" if unknown."""
    if is_infinite(dataset):
        return "infinite"
    count = length(dataset)
    return "" if count is None else f"{count:,}"


def _is_infinite(dataset: Any, count: int) -> bool:
    if count >= sys.maxsize:
        return True
    # As in Grain, batches of an infinite dataset have a length: `sys.maxsize` over the batch size.
    return count > _SURELY_INFINITE and any(map(is_infinite, getattr(dataset, "parents", ())))


def _len(dataset: Any) -> int | None:
    try:
        return len(dataset) if hasattr(type(dataset), "__len__") else None
    except Exception as error:
        if is_interruption(error):
            raise
        return None


def inputs(dataset: Any) -> Sequence[Any]:
    """Return the datasets that a stage reads from, if they are known before it runs."""
    parents: Sequence[Any] = getattr(dataset, "parents", ())
    if not parents and isinstance(getattr(dataset, "datasets", None), (list, tuple)):
        return dataset.datasets  # type: ignore[no-any-return]
    return parents


def line(dataset: Any) -> str:
    """Return a pipeline on one line, source first; of a long one the first and last stage only."""
    stages = [label(dataset)]
    above = inputs(dataset)
    while len(above) == 1:
        stages.insert(0, label(above[0]))
        above = inputs(above[0])
    if len(" > ".join(stages)) > _LONGEST_LINE and len(stages) > 2:
        stages = [stages[0], "...", stages[-1]]
    return " > ".join(stages)


def tree(dataset: Any, label: Callable[[Any], str] = label) -> str:
    """Return a pipeline as a tree with lengths, output first."""
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


def snake_case(name: str) -> str:
    """Return a class name in snake case: `MapWithIndex` becomes `map_with_index`."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def counted(number: int, what: str) -> str:
    """Return a count with its noun: "1 worker", "2 workers"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
