"""A pipeline in a few words: a line for each stage, and how many elements it has."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_FEWEST_TO_FOLD = 5
_LONGEST_LINE = 80
_LONGEST_PATH = 40

_SURELY_INFINITE = 2**40
"""A part of an infinite dataset with more elements than that was not cut off by anybody."""


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
        return dataset._label()  # type: ignore[no-any-return]
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


def snake_case(name: str) -> str:
    """Return the name of a class as a method would be called: `MapWithIndex`, `map_with_index`."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 worker", "2 workers"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
