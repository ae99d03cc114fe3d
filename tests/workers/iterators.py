"""Iterators for workers to run, in a module that imports little."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wholegrain._workers.program import Program
from wholegrain._workers.remote import RemoteIterator


class Mapped:
    """Yields `function(0)`, `function(1)` and so on, `length` of them."""

    def __init__(self, length: int, function: Callable[[int], Any]) -> None:
        self.length = length
        self.function = function
        self.next_index = 0

    def __next__(self) -> Any:
        if self.next_index >= self.length:
            raise StopIteration
        self.next_index += 1
        return self.function(self.next_index - 1)

    def get_state(self) -> Any:
        return {"next_index": self.next_index}

    def set_state(self, state: Any, /) -> None:
        self.next_index = state["next_index"]


class Nested(Mapped):
    """The same with a state that is more than a number."""

    def get_state(self) -> Any:
        return {"parent": {"next_index": self.next_index}, "seen": ["a", self.next_index % 3]}

    def set_state(self, state: Any, /) -> None:
        assert state["seen"] == ["a", state["parent"]["next_index"] % 3]
        self.next_index = state["parent"]["next_index"]


class Stacked(Mapped):
    """Yields batches that are written where they will be read."""

    def next_into(self, empty: Callable[[tuple[int, ...], Any], npt.NDArray[Any]]) -> Any:
        number = super().__next__()
        image = empty((64, 100), np.float32)
        image[:] = number
        label = empty((3,), np.int64)
        label[:] = number
        mask = empty((30_000,), np.bool_)
        mask[:] = number % 2
        extra = np.full(20_000, number, np.int16)
        return {"image": image, "label": label, "mask": mask, "extra": extra, "again": image}


class Reporting(Mapped):
    """Tells how far it is."""

    def get_report(self) -> Any:
        return {"made": self.next_index}


def batch(number: int) -> dict[str, Any]:
    return {"x": np.full((100, 300), number, np.float32), "y": np.arange(5) + number, "n": number}


def tiny_dict(number: int) -> Any:
    return {"number": number, "text": "x" * (number % 50)}


def large(number: int) -> Any:
    return np.full(600_000, number % 251, np.uint8)


def identity(number: int) -> int:
    return number


def remote(
    length: int,
    function: Callable[[int], Any] = identity,
    kind: type[Mapped] = Mapped,
    index: int = 0,
    count: int = 1,
    buffer_size: int = 1,
    **options: Any,
) -> RemoteIterator[Any]:
    """Return an iterator whose worker yields `function` of the numbers below `length`."""
    return RemoteIterator(
        Program.pack(lambda _index, _count: kind(length, function)),
        index,
        count,
        buffer_size=buffer_size,
        initial_state=kind(length, function).get_state,
        **options,
    )
