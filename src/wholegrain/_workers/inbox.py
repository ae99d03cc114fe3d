"""The base class of iterators over workers: the current message, and closing."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from wholegrain._read import forks
from wholegrain._workers import messages
from wholegrain._workers.client import WorkerClient

T = TypeVar("T")


class Delivery(NamedTuple):
    """The elements of a message.

    Attributes:
        elements: The elements, or their records.
        size: How many there are.
        decode: Turns a record into an element; None if they are elements.
        wire_states: The states after each of them.
        source: The worker that sent it.
        nbytes: The size of the elements.
    """

    elements: Sequence[Any] = ()
    size: int = 0
    decode: Callable[[Any], Any] | None = None
    wire_states: Sequence[int | bytes] = ()
    source: WorkerClient | None = None
    nbytes: int = 0

    def last_wire_state(self, count: int | None = None) -> int | bytes | None:
        """Return the state after the last element, or after the first `count` elements."""
        # At most all of them: an interrupted or closed iterator may have another message's cursor.
        most = len(self.wire_states)
        count = most if count is None else min(count, most)
        return self.wire_states[count - 1] if count else None


_NOTHING = Delivery()


class Life:
    """Whether an iterator over workers may still be used, and by which process."""

    def __init__(self) -> None:
        self.is_closed = False
        self._owner = os.getpid()
        self._is_left_to_parent = False

    def leave_to_parent(self) -> None:
        """Record that this is a forked child of the process that has the workers."""
        self._is_left_to_parent = True

    def check(self) -> None:
        """Raise if the iterator may not be used any more."""
        if self._is_left_to_parent:
            raise forks.used_in_child_error(self._owner)
        if self.is_closed:
            raise ValueError(
                "Trying to advance a closed iterator. Make a new one with `iter(ds)`, and restore"
                " its position with `set_state`."
            )


class Inbox(ABC, Generic[T]):
    """Returns the elements of one message after the other.

    Another thread may call `close` in the middle of `next`. To avoid a race, everything about the
    current message is one attribute, which is always assigned before `_cursor` and read after it.
    """

    def __init__(self) -> None:
        self._current = _NOTHING
        self._cursor = 0  # How many elements of the message were handed out.
        self._life = Life()
        forks.call_in_child(self, Inbox._leave_to_parent)

    def __iter__(self) -> "Inbox[T]":
        return self

    def __next__(self) -> T:
        cursor = self._cursor
        elements, count, decode, _, _, _ = self._current
        if cursor >= count:
            elements, count, decode, _, _, _ = self._next_message()
            cursor = 0
        element = elements[cursor]
        if cursor + 1 == count:
            self._acknowledge()
        self._cursor = cursor + 1
        if decode is None:
            return element  # type: ignore[no-any-return]
        try:
            return decode(element)  # type: ignore[no-any-return]
        except Exception as error:
            self._life.check()
            error.add_note(f"{self._made_by} made this element, but it could not be received.")
            raise

    @property
    @abstractmethod
    def _made_by(self) -> str:
        """The name of the worker that made the current message."""

    @abstractmethod
    def _next_message(self) -> Delivery:
        """Wait for the next message with elements, and `_hold` it."""

    @abstractmethod
    def _acknowledge(self) -> None:
        """Record that the last element of the current message is being handed out."""

    @property
    @abstractmethod
    def _has_workers(self) -> bool:
        """Whether any worker is running."""

    @abstractmethod
    def close(self) -> None:
        """End the workers without waiting for them. Can be called more than once."""

    def _hold(
        self,
        client: WorkerClient,
        kind: int,
        elements: list[Any],
        wire_states: Sequence[int | bytes],
        nbytes: int = 0,
    ) -> Delivery:
        """Make a message the current one; return the new value of `_current`."""
        decode = client.decode if kind == messages.RECORDS else None
        current = Delivery(elements, len(elements), decode, wire_states, client, nbytes)
        self._current = current
        self._cursor = 0
        return current

    def _drop(self) -> None:
        """Discard the current message, and release its slots."""
        current = self._current
        if current.source is not None and current.decode is not None:
            discard(current.source, messages.RECORDS, current.elements[self._cursor :])
        self._forget()

    def _forget(self) -> None:
        self._current = _NOTHING
        self._cursor = 0

    def _leave_to_parent(self) -> None:
        """Release the workers in a forked child; they belong to the parent. Keep the position."""
        if self._has_workers:
            self._life.leave_to_parent()
            self.close()


def discard(client: WorkerClient, kind: int, elements: Sequence[Any]) -> None:
    """Release the slots of elements that will not be decoded."""
    if kind == messages.RECORDS:
        for record in elements:
            client.discard(record)
