"""A worker's finished elements: collected, joined into messages, and sent.

A finished element is sent at once, unless elements come so fast that sending would be a large part
of the work. Then they are collected for up to a millisecond. If the next element takes long after
all, the waiting consumer sends `NUDGE`, and the worker's second thread sends what was collected.
"""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from wholegrain._workers.backend import Message
from wholegrain._workers.messages import MAX_AHEAD, MAX_AHEAD_BYTES, PLAIN, RECORDS, REPORT
from wholegrain._workers.pickling import dumps
from wholegrain._workers.transport import Encoder

WireState = int | bytes
"""A state as it is sent: an int for a plain counter, else a pickle."""

_MAX_TOGETHER = 256
_MAX_TOGETHER_BYTES = 1 << 15
_MANY = 64
_QUICK_S = 500e-6
_MAX_WAIT_S = 1e-3
# Immutable, so that all elements of a message can be pickled together later.
_NUMBERS = frozenset({int, float, bool, type(None), complex})
_STRINGS = frozenset({str, bytes})
_MAX_STRING = 1 << 12
_NUMBER_BYTES = 16


def leave(code: int) -> NoReturn:
    """Exit the process at once, from any thread, after flushing the output streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


class Ahead:
    """Back-pressure: how far the worker is ahead of the consumer, in elements and bytes.

    Args:
        buffer_size: How many finished elements the consumer wants to have ready.

    Attributes:
        made: How many elements were made in this generation.
        nbytes: The size of the elements that were made and not taken.
    """

    def __init__(self, buffer_size: int) -> None:
        self._limit = 2 * buffer_size + 1
        self.start_over()

    def start_over(self) -> None:
        """Count from 0 again, because a new generation begins."""
        self.made = 0
        self.nbytes = 0
        self._taken = 0
        self._sent = 0
        # For each message that is not taken: how many elements were sent with it, and its bytes.
        self._messages: deque[tuple[int, int]] = deque()

    @property
    def room(self) -> int:
        """How many elements may be made before the consumer has to take some."""
        ahead = self.made - self._taken
        most = self._limit
        if most < MAX_AHEAD and self.nbytes < MAX_AHEAD_BYTES:
            most = MAX_AHEAD
        return most - ahead

    def is_full(self) -> bool:
        """Return whether there is no room."""
        # The usual case first: this is called for every element.
        return self.made - self._taken >= self._limit and self.room <= 0

    def note_made(self, count: int, nbytes: int) -> None:
        """Count finished elements."""
        self.made += count
        self.nbytes += nbytes

    def note_sent(self, count: int, nbytes: int) -> None:
        """Count a message."""
        self._sent += count
        self._messages.append((self._sent, nbytes))

    def note_taken(self, taken: int) -> None:
        """Record how many elements of this generation the consumer has taken in total."""
        self._taken = taken
        while self._messages and self._messages[0][0] <= taken:
            self.nbytes -= self._messages.popleft()[1]


class Outbox:
    """Sends elements and other messages in order.

    The first thread of a worker adds elements, and both threads may send the collected ones: the
    second one only if the first is not sending. `_held` is shared by them, so only its atomic
    `append` and `popleft` are used.

    Args:
        send: Sends a message. It raises `OSError` if the consumer is gone.
        buffer_size: How many finished elements the consumer wants to have ready.
        generation: The generation of the first elements.

    Attributes:
        ahead: How far the worker is ahead of the consumer.
        generation: The generation of the elements.
        encoder: Encodes what cannot be pickled together; set before the first element is added.
        singly: How many elements of this generation are sent one by one.
        added_at: When the last element was added.
        get_report: If set, its result is sent before each message of elements.
    """

    encoder: Encoder
    get_report: Callable[[], Any] | None = None

    def __init__(
        self, send: Callable[[Message], None], buffer_size: int, generation: int, singly: int
    ) -> None:
        self.ahead = Ahead(buffer_size)
        self.generation = generation
        self.singly = singly
        self.added_at = 0.0
        self._send_message = send
        self._sending = threading.Lock()
        # Each with its wire state and size.
        self._held: deque[tuple[Any, WireState, int]] = deque()
        self._kind = PLAIN  # Of the held elements.
        self._nbytes = 0
        self._since = 0.0
        self._last_wire_state: WireState = b""

    def add(self, element: Any, wire_state: WireState) -> None:
        """Send an element, at once or together with the next ones.

        Raises:
            Exception: If the element cannot be sent.
        """
        kind = type(element)
        if kind in _NUMBERS or (kind in _STRINGS and len(element) <= _MAX_STRING):
            if self._kind != PLAIN:
                self._change_kind(PLAIN)
            nbytes = _NUMBER_BYTES if kind in _NUMBERS else _NUMBER_BYTES + len(element)
        else:
            if self._kind != RECORDS:
                self._change_kind(RECORDS)
            element, nbytes = self.encoder.encode(element)
            nbytes += 64
        if type(wire_state) is bytes:
            if wire_state == self._last_wire_state:
                wire_state = self._last_wire_state  # One object is pickled once per message.
            else:
                self._last_wire_state = wire_state
                nbytes += len(wire_state)
        ahead = self.ahead
        ahead.made += 1
        ahead.nbytes += nbytes
        now = time.perf_counter()
        held = self._held
        if not held:
            self._nbytes = 0
            self._since = now
        self._nbytes += nbytes
        held.append((element, wire_state, nbytes))
        if (
            now - self.added_at > _QUICK_S
            or now - self._since > _MAX_WAIT_S
            or len(held) >= _MAX_TOGETHER
            or self._nbytes >= _MAX_TOGETHER_BYTES
            or ahead.made <= self.singly
        ):
            self.flush()
        self.added_at = now

    def add_plain(self, elements: list[Any], wire_states: Sequence[WireState]) -> bool:
        """Send many numbers or many short strings as one message; return False for other elements.

        Nothing is sent if it returns False.
        """
        count = len(elements)
        kinds = set(map(type, elements))
        if kinds <= _NUMBERS:
            nbytes = _NUMBER_BYTES * count
        elif kinds <= _STRINGS and max(map(len, elements)) <= _MAX_STRING:
            nbytes = _NUMBER_BYTES * count + sum(map(len, elements))
        else:
            return False
        if count < _MANY or type(wire_states) is not range:
            for element, wire_state in zip(elements, wire_states, strict=True):
                self.add(element, wire_state)
            return True
        self.ahead.note_made(count, nbytes)
        with self._sending:
            self._flush_held()
            self._kind = PLAIN
            self._send_content([], elements, wire_states, nbytes)
        self.added_at = time.perf_counter()
        return True

    def _change_kind(self, kind: int) -> None:
        self.flush()
        self._kind = kind

    def flush(self) -> None:
        """Send all collected elements."""
        with self._sending:
            self._flush_held()

    def flush_if_free(self) -> None:
        """Do the same in the second thread, unless the first one is sending."""
        if self._sending.acquire(blocking=False):
            try:
                self._flush_held()
            finally:
                self._sending.release()

    def _flush_held(self) -> None:
        held = self._held
        some = [held.popleft() for _ in range(len(held))]
        if not some:
            return
        layouts: list[tuple[int, bytes]] = []
        if self._kind == RECORDS:
            # Layouts of elements that could not be sent wait for the next records.
            new = self.encoder.new_layouts
            layouts = [new.popleft() for _ in range(len(new))]
        items, wire_states, sizes = zip(*some, strict=True)
        self._send_content(layouts, list(items), list(wire_states), sum(sizes))

    def _send_content(
        self,
        layouts: list[tuple[int, bytes]],
        items: list[Any],
        wire_states: Sequence[WireState],
        nbytes: int,
    ) -> None:
        if self.get_report is not None:
            self._send_report(self.get_report)
        self.ahead.note_sent(len(items), nbytes)
        self._send(self._kind, self.generation, layouts, items, wire_states, nbytes)

    def send(self, *message: Any) -> None:
        """Send another message. Collected elements may be sent after it: see `flush`."""
        with self._sending:
            self._send(*message)

    def send_report(self, get_report: Callable[[], Any]) -> None:
        """Send a report on this worker's part of the run."""
        with self._sending:
            self._send_report(get_report)

    def _send_report(self, get_report: Callable[[], Any]) -> None:
        with suppress(Exception):  # A failing report must not stop elements.
            self._send(REPORT, dumps(get_report()))

    def _send(self, *message: Any) -> None:
        try:
            self._send_message(message)
        except OSError:
            leave(0)  # The consumer is gone.

    def charge_error(self) -> None:
        """Count an error as an element.

        It is charged the whole byte budget, so that a pipeline that always fails cannot queue 1024
        errors.
        """
        self.ahead.note_made(1, MAX_AHEAD_BYTES)
        self.ahead.note_sent(1, MAX_AHEAD_BYTES)

    def start_over(self, generation: int, singly: int) -> None:
        """Discard what was not sent, and begin another generation."""
        with self._sending:
            if self._kind == RECORDS:
                for record, _, _ in self._held:
                    self.encoder.discard(record)
            self._held.clear()
            self.ahead.start_over()
            self.generation = generation
            self.singly = singly
