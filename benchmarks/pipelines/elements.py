"""What flows through the random pipelines: kinds of elements, sources, and users' functions."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

WORDS = ["alpha", "Beta", "GAMMA", "delta", "Epsilon", "zeta", "Eta", "theta"]


@dataclasses.dataclass
class Point:
    """An element as many programs have it."""

    x: Any
    y: int


@attrs.define
class Sample:
    """The same, by attrs."""

    x: Any
    y: int


def _int(number: int) -> Any:
    return number * 7 % 1009


def _str(number: int) -> Any:
    return f"{WORDS[number % 8]} {number}"


def _dict(number: int) -> Any:
    return {"x": np.full(8, number, np.float32), "y": number % 1009}


def _flat(number: int) -> Any:
    return {"a": number, "b": number / 2, "c": number % 7, "d": 1.5, "e": number % 2, "y": number}


def _nested(number: int) -> Any:
    image = {"pixels": np.full((16, 16), number % 256, np.uint8), "label": number % 10}
    return {"image": image, "box": (number, number / 3), "y": number % 1009}


def _array(number: int) -> Any:
    return np.full(16, number % 1009, np.float32)


def _big(number: int) -> Any:
    return np.full(2560, number % 1009, np.float32)


def _point(number: int) -> Any:
    return Point(np.full(8, number, np.float32), number % 1009)


def _sample(number: int) -> Any:
    return Sample(np.full(8, number, np.float32), number % 1009)


def _tokens(number: int) -> Any:
    return {"tokens": np.arange(5 + number * 7 % 60, dtype=np.int32)}


MAKERS: dict[str, Callable[[int], Any]] = {
    "int": _int,
    "str": _str,
    "dict": _dict,
    "flat": _flat,
    "nested": _nested,
    "array": _array,
    "big": _big,
    "point": _point,
    "sample": _sample,
    "tokens": _tokens,
}


class ReadsOne:
    """A source that reads one element at a time."""

    def __init__(self, elements: Sequence[Any]) -> None:
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, index: Any) -> Any:
        return self._elements[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)})"


class ReadsMany(ReadsOne):
    """A source that reads many at once, as those over files do."""

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        return [self._elements[index] for index in indices]


@functools.cache
def elements_of(kind: str, length: int) -> Sequence[Any]:
    """Return the elements of a source, made once: a few thousand different ones."""
    if kind == "rows":
        return np.repeat(np.arange(length) % 1009, 16).astype(np.float32).reshape(length, 16)
    if kind in ("int", "str"):
        return [MAKERS[kind](number) for number in range(length)]
    few = [MAKERS[kind](number) for number in range(min(length, 2_000 if kind == "big" else 5_000))]
    return [few[number % len(few)] for number in range(length)]


def source_of(kind: str, length: int, reads: str) -> Any:
    """Return a source: a list or an array as it is, or an object around it."""
    elements = elements_of(kind, length)
    if reads == "one":
        return ReadsOne(elements)
    return ReadsMany(elements) if reads == "many" else elements


# Users' functions, for every kind of element: cheap ones, so that the library is what is measured.


def with_y(element: Any) -> Any:
    return {**element, "y": element["y"] + 1}


def tokens_plus_one(element: Any) -> Any:
    return {"tokens": element["tokens"] + 1}


def moved_point(element: Any) -> Any:
    return Point(element.x, element.y + 1)


def moved_sample(element: Any) -> Any:
    return Sample(element.x, element.y + 1)


def plus_one(element: Any) -> Any:
    return element + 1


def same(element: Any) -> Any:
    return element


MAPS: dict[str, Callable[[Any], Any]] = {
    "int": plus_one,
    "str": str.lower,
    "dict": with_y,
    "flat": with_y,
    "nested": with_y,
    "array": plus_one,
    "rows": plus_one,
    "big": plus_one,
    "point": moved_point,
    "sample": moved_sample,
    "tokens": tokens_plus_one,
    "batch": same,
    "tuple": same,
}


def to_dict(element: Any) -> Any:
    return {"x": element.x, "y": element.y}


def number_of(element: Any) -> int:
    """Return a number that filters and random maps look at."""
    if isinstance(element, dict):
        return element["y"] if "y" in element else len(element["tokens"])  # type: ignore[no-any-return]
    if isinstance(element, int):
        return element
    if isinstance(element, str):
        return len(element)
    return element.y if hasattr(element, "y") else int(element[0])  # type: ignore[no-any-return]


def _keeps_int(element: Any) -> bool:
    return element % 4 != 0  # type: ignore[no-any-return]


def _keeps_dict(element: Any) -> bool:
    return element["y"] % 4 != 0  # type: ignore[no-any-return]


def _keeps_any(element: Any) -> bool:
    return number_of(element) % 4 != 0


def keeps(kind: str) -> Callable[[Any], bool]:
    """Return a filter that drops a quarter."""
    if kind == "int":
        return _keeps_int
    return _keeps_dict if kind in ("dict", "flat", "nested") else _keeps_any


def _noise_int(element: Any, rng: np.random.Generator) -> Any:
    return element + int(rng.integers(10))


def _noise_dict(element: Any, rng: np.random.Generator) -> Any:
    return {**element, "y": element["y"] + int(rng.integers(10))}


def _noise_array(element: Any, rng: np.random.Generator) -> Any:
    return element + np.float32(rng.random())


def noise(kind: str) -> Callable[[Any, np.random.Generator], Any] | None:
    """Return a function of an element and random numbers; None if there is none."""
    if kind == "int":
        return _noise_int
    if kind in ("dict", "flat", "nested"):
        return _noise_dict
    return _noise_array if kind in ("array", "big", "rows") else None


def with_index(index: int, element: Any) -> Any:
    return element


def twice(element: Any) -> list[Any]:
    return [element, element]


# What a program without a library would stack a batch with.


def stacker(kind: str) -> Callable[[list[Any]], Any]:
    """Return a function that stacks elements of a kind."""
    if kind in ("int", "str"):
        return np.array
    if kind in ("array", "big", "rows"):
        return np.stack
    if kind == "nested":
        return _stack_nested
    return _stack_dicts


def _stack_dicts(members: list[Any]) -> Any:
    return {key: np.array([member[key] for member in members]) for key in members[0]}


def _stack_nested(members: list[Any]) -> Any:
    return {
        "image": {
            "pixels": np.stack([member["image"]["pixels"] for member in members]),
            "label": np.array([member["image"]["label"] for member in members]),
        },
        "box": tuple(np.array([member["box"][place] for member in members]) for place in (0, 1)),
        "y": np.array([member["y"] for member in members]),
    }


def endless(start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Start again whenever it ends."""
    while True:
        yield from start()
