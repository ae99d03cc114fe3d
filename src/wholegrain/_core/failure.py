"""Elements that could not be read, as values in a chunk.

Each index is read only once. An exception therefore does not abort the chunk: it is recorded at the
position of its element, results before it are kept, and reading continues after it. The iterator
raises the exception when its turn comes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, overload

from wholegrain._core.interruption import is_interruption


class Failure:
    """Represents an element of a chunk that could not be read.

    Args:
        error: The exception.
        stage: The dataset that raised it, if that is known.
        at: The index of the element in that dataset.
    """

    __slots__ = ("at", "error", "stage", "traceback")

    def __init__(self, error: BaseException, stage: Any = None, at: int = 0) -> None:
        self.error = error
        self.stage = stage
        self.at = at
        self.traceback: TracebackType | None = error.__traceback__


def is_failure(element: Any) -> bool:
    """Return whether an element of a chunk is a Failure."""
    return type(element) is Failure


class PartlyFailed(list[Any]):
    """A chunk with Failures in it.

    It is a type of its own so that a stage checks a chunk once, not each element.

    Attributes:
        raised_before: Exceptions that belong to no element; they are raised before the first one.
    """

    raised_before: Sequence[BaseException] = ()

    @overload
    def __getitem__(self, position: Any) -> Any: ...
    @overload
    def __getitem__(self, position: slice) -> PartlyFailed: ...  # type: ignore[overload-cannot-match]
    def __getitem__(self, position: Any) -> Any:
        if not isinstance(position, slice):
            return super().__getitem__(position)
        part = PartlyFailed(super().__getitem__(position))
        if not position.start:
            part.raised_before = self.raised_before
        return part

    def next_failure(self, start: int) -> int:
        """Return the position of the first Failure from `start` on; the length if there is none."""
        for position in range(start, len(self)):
            if type(self[position]) is Failure:
                return position
        return len(self)


def joined(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Concatenate chunks."""
    if len(parts) == 1:
        return parts[0]
    elements = [element for part in parts for element in part]
    failed = [part for part in parts if type(part) is PartlyFailed]
    if not failed:
        return elements
    whole = PartlyFailed(elements)
    whole.raised_before = [error for part in failed for error in part.raised_before]
    return whole


class _Thread(threading.local):
    records_all = False


_thread = _Thread()


def record_all() -> None:
    """Record every exception in this thread, because no signal handler runs in it."""
    _thread.records_all = True


def can_be_recorded(error: BaseException) -> bool:
    """Return whether an exception concerns an element rather than interrupts the consumer."""
    return _thread.records_all or not is_interruption(error)


_once: dict[int, list[BaseException]] = {}


def raise_once(error: BaseException) -> None:
    """Raise `error` before the chunk being read. It belongs to no element: a retry succeeded."""
    _once.setdefault(threading.get_ident(), []).append(error)


def to_raise_once() -> Iterable[BaseException]:
    """Return and remove the exceptions that this thread has passed to `raise_once`."""
    return _once.pop(threading.get_ident(), ()) if _once else ()


def raising_once(chunk: Sequence[Any]) -> Sequence[Any]:
    """Return the chunk with those exceptions attached, to be raised before its first element."""
    errors = list(to_raise_once())
    if not errors:
        return chunk
    raising = PartlyFailed(chunk)
    raising.raised_before = errors
    return raising


def is_anything_to_raise() -> bool:
    """Return whether any thread has such exceptions. This is fast, and nearly always False."""
    return bool(_once)
