"""The base class of iterators over workers: the current message, and closing."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from wholegrain._read import forks
from wholegrain._workers import messages
from wholegrain._workers.backend import WorkerExit
from wholegrain._workers.client import WorkerClient

T = TypeVar("T")

SINGLY_AFTER_DEATH = 2048
"""After a worker has died, this many of its remaining elements are sent one by one.

If a worker dies again, this shows which element was next."""

MOST_LOSSES = 5
"""How many deaths at one element may have an outside or unknown cause before it is an error."""

Current = tuple[list[Any], int, Callable[[Any], Any] | None]
"""The elements of a message, how many there are, and their decoder if they are records."""

_NO_ELEMENTS: Current = ([], 0, None)


class Inbox(ABC, Generic[T]):
    """Returns the elements of one message after the other.

    Another thread may call `close` in the middle of `next`. To avoid a race, the elements of the
    current message, their number and their decoder are one attribute, which is always assigned
    before `_cursor` and read after it.
    """

    def __init__(self) -> None:
        self._current = _NO_ELEMENTS
        self._cursor = 0  # How many elements of the message were handed out.
        self._wire_states: list[int | bytes] = []  # The states after each of them.
        self._source: WorkerClient | None = None
        self._closed = False
        self._owner = os.getpid()
        self._left_to_parent = False
        forks.call_in_child(self, Inbox._leave_to_parent)

    def __iter__(self) -> "Inbox[T]":
        return self

    def __next__(self) -> T:
        cursor = self._cursor
        elements, count, decode = self._current
        if cursor >= count:
            elements, count, decode = self._next_message()
            cursor = 0
        element = elements[cursor]
        if cursor + 1 == count:
            self._acknowledge(count)
        self._cursor = cursor + 1
        if decode is None:
            return element  # type: ignore[no-any-return]
        try:
            return decode(element)  # type: ignore[no-any-return]
        except Exception as error:
            self._check_open()
            error.add_note(f"{self._made_by} made this element, but it could not be received.")
            raise

    @property
    @abstractmethod
    def _made_by(self) -> str:
        """The name of the worker that made the current message."""

    @abstractmethod
    def _next_message(self) -> Current:
        """Wait for the next message with elements, and `_hold` it."""

    @abstractmethod
    def _acknowledge(self, count: int) -> None:
        """Record that the last of `count` elements of a message is being handed out."""

    @property
    @abstractmethod
    def _has_workers(self) -> bool:
        """Whether any worker is running."""

    @abstractmethod
    def close(self) -> None:
        """End the workers without waiting for them. Can be called more than once."""

    def _hold(
        self, client: WorkerClient, kind: int, elements: list[Any], wire_states: list[int | bytes]
    ) -> Current:
        """Make a message the current one; return the new value of `_current`."""
        self._wire_states = wire_states
        self._source = client
        decode = client.decode if kind == messages.RECORDS else None
        current = self._current = elements, len(elements), decode
        self._cursor = 0
        return current

    def _drop(self) -> None:
        """Discard the current message, and release its slots."""
        elements, _, decode = self._current
        if self._source is not None and decode is not None:
            discard(self._source, messages.RECORDS, elements[self._cursor :])
        self._forget()

    def _forget(self) -> None:
        self._current = _NO_ELEMENTS
        self._cursor = 0
        self._wire_states = []
        self._source = None

    def _leave_to_parent(self) -> None:
        """Release the workers in a forked child; they belong to the parent. Keep the position."""
        if self._has_workers:
            self._left_to_parent = True
            self.close()

    def _check_open(self) -> None:
        if self._left_to_parent:
            raise forks.used_in_child_error(self._owner)
        if self._closed:
            raise ValueError(
                "Trying to advance a closed iterator. Make a new one with `iter(ds)`, and restore"
                " its position with `set_state`."
            )


def discard(client: WorkerClient, kind: int, elements: list[Any]) -> None:
    """Release the slots of elements that will not be decoded."""
    if kind == messages.RECORDS:
        for record in elements:
            client.discard(record)


def death_text(ended: WorkerExit, happened: str) -> str:
    """Return the error message for an element at which workers die.

    Args:
        ended: How the last worker ended.
        happened: Sentences that name the element.
    """
    text = f"Worker process was terminated unexpectedly with {ended.reason}. {happened}"
    if ended.hint:
        text += f" {ended.hint}"
    return f"{text}\n{ended.report}" if ended.report else text
