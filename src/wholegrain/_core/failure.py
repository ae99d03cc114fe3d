"""Elements that could not be read, as values in a chunk.

An index is read once. So an exception does not end the reading of a chunk: it is recorded in the
place of its element, what was read before it is kept, and what stands after it is read on. The
consumer raises it when its turn comes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, overload

from wholegrain._core.interruption import is_interruption


class Failure:
    """Stands in a chunk for an element that could not be read.

    Args:
        error: What was raised.
        stage: The dataset in which that happened, as far as is known.
        at: The index of the element there.
    """

    __slots__ = ("at", "error", "stage", "traceback")

    def __init__(self, error: BaseException, stage: Any = None, at: int = 0) -> None:
        self.error = error
        self.stage = stage
        self.at = at
        self.traceback: TracebackType | None = error.__traceback__


def is_failure(element: Any) -> bool:
    """Say whether a Failure stands in an element's place."""
    return type(element) is Failure


class PartlyFailed(list[Any]):
    """A chunk with Failures in it.

    It has a type of its own so that a stage looks once at a chunk, not at each element.

    Attributes:
        raised_before: Exceptions that belong to no element: they are raised before the first.
    """

    raised_before: Sequence[BaseException] = ()

    @overload
    def __getitem__(self, place: Any) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> PartlyFailed: ...  # type: ignore[overload-cannot-match]
    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return super().__getitem__(place)
        part = PartlyFailed(super().__getitem__(place))
        if not place.start:
            part.raised_before = self.raised_before
        return part

    def next_failure(self, start: int) -> int:
        """Return the first place from `start` on at which a Failure stands; the length if none."""
        for place in range(start, len(self)):
            if type(self[place]) is Failure:
                return place
        return len(self)


def joined(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return chunks as one."""
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
    """Record every exception of this thread in its place: nobody could interrupt it."""
    _thread.records_all = True


def can_be_recorded(error: BaseException) -> bool:
    """Say whether an exception tells of an element, rather than interrupts the consumer."""
    return _thread.records_all or not is_interruption(error)


_once: dict[int, list[BaseException]] = {}


def raise_once(error: BaseException) -> None:
    """Have an exception raised that belongs to no element, because reading again went well."""
    _once.setdefault(threading.get_ident(), []).append(error)


def to_raise_once() -> Iterable[BaseException]:
    """Return the exceptions of this thread that are to be raised once, and forget them."""
    return _once.pop(threading.get_ident(), ()) if _once else ()


def raising_once(chunk: Sequence[Any]) -> Sequence[Any]:
    """Return a chunk, before whose first element those exceptions are raised."""
    errors = list(to_raise_once())
    if not errors:
        return chunk
    raising = PartlyFailed(chunk)
    raising.raised_before = errors
    return raising


def is_anything_to_raise() -> bool:
    """Say whether there may be such exceptions: quick, and nearly always false."""
    return bool(_once)
