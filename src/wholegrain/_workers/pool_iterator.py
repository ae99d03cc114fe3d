"""Spans of a pipeline, assigned to a variable number of workers and returned in order.

    consumer: next()                 workers: each makes one span and has the next in its queue
        |                                |
        |  takes elements of the head    |  an idle worker gets the next span, if there is room
        v                                v
    [ 0..63: complete ][ 64..127: running ][ 128..191: complete ][ 192..255: running ] ...

A span is a state to start from and a number of elements. The result does not depend on which worker
makes it, so workers can be added, removed and lost: another worker makes what one has not sent.

No thread runs in the background here. When the consumer asks for elements, it receives the messages
that have arrived, and assigns enough spans to keep the workers busy until it asks again.
"""

import contextlib
import pickle
import time
from collections import deque
from typing import Any, Protocol, TypeVar

from wholegrain._core.errors import take_no_place
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._workers import messages
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.failures import unpack_error
from wholegrain._workers.inbox import Current, Inbox, discard
from wholegrain._workers.pickling import dumps
from wholegrain._workers.pool import PooledWorker, Span, WorkerPool

T = TypeVar("T")

_SPAN_S = 10e-3
"""The time that a worker should take for a span."""

_SMALLEST_DEPTH_S = 50e-3
_LARGEST_DEPTH_S = 1.0
"""Bounds of how much time the spans in a worker's queue should take."""

_ROOM_BYTES = 4 << 20
_ROOM_ELEMENTS = 8192
"""How many bytes and elements may be ready for each worker if elements are small."""

_LONGEST_SPAN = 4096
_GROWTH = 4
_PUMP_EVERY_S = 0.5e-3


class Positions(Protocol):
    """Computes states by arithmetic."""

    def left(self, state: Any, /) -> int:
        """Return how many elements follow after `state`."""

    def after(self, state: Any, count: int, /) -> Any:
        """Return the state `count` elements after `state`."""


class PoolIterator(Inbox[T]):
    """Returns the elements of a pipeline in order, made in spans by a pool of workers.

    The iterator in a worker takes `(state, count, is_last, is_suspect)` as its state: where the
    span starts, how many elements it has, whether to continue to the end of the data and report
    the state there, and whether to read one element at a time because one may kill the worker. It
    returns `{"next_index": made}` as its own state while positions follow from that number. When
    they no longer do, or at the end of the data, its state has the keys `"state"` (the pipeline's
    state), `"has_ended"` (whether this is the end) and `"is_over"` (whether the exception with it
    only carries this information).

    Args:
        pool: The workers.
        positions: Computes the state after a number of elements.
        state: The state to start from.
        buffer_size: How many finished elements should be ready for each worker.
    """

    def __init__(
        self, pool: WorkerPool, positions: Positions, state: Any, buffer_size: int
    ) -> None:
        super().__init__()
        self._pool = pool
        self._positions = positions
        self._buffer_size = buffer_size
        # Measured: seconds and bytes per element, and the time between two calls of the consumer.
        self._seconds: float | None = None
        self._nbytes = 1.0
        self._away_s = 0.0
        self._left_at: float | None = None
        self._pumped_at = 0.0
        self._size = 1
        self._next_number = 1
        self._stand_at(state)

    def _stand_at(self, state: Any) -> None:
        """Forget all spans, and count elements from `state`."""
        self._base = state
        self._length = self._positions.left(state)
        self._planned = 0
        self._has_planned_end = False
        self._ended = False
        self._spans: deque[Span] = deque()
        self._orphans: deque[Span] = deque()
        self._numbers: dict[int, Span] = {}
        self._given = 0  # Elements before the current message.
        self._forget()

    # Elements.

    @property
    def _made_by(self) -> str:
        return "A worker"

    @property
    def _has_workers(self) -> bool:
        return bool(self._pool.workers)

    def _acknowledge(self, count: int) -> None:
        """Do nothing: acknowledgements are sent with the next span."""

    def _next_message(self) -> Current:
        """Wait for the next message in order; return the new value of `_current`."""
        while True:
            try:
                head = self._next_arrived()
                arrived = head.arrived.popleft()
            except Exception as error:
                self._check_open()  # Another thread may have called `close` meanwhile.
                take_no_place(error)
                raise
            current = self._take_over(head, *arrived)
            if self._closed:
                self._stand_at(self._base)
                self._check_open()
            if current is not None:
                return current

    def _next_arrived(self) -> Span:
        """Wait until a message has arrived for the first span; return the span."""
        self._check_open()
        if self._ended:
            raise StopIteration
        now = time.perf_counter()
        if self._left_at is not None:
            self._away_s = max(now - self._left_at, 0.9 * self._away_s)
        if now - self._pumped_at > _PUMP_EVERY_S:
            self._pump()
        while True:
            head = self._spans[0] if self._spans else None
            if head is not None and head.arrived:
                self._left_at = time.perf_counter()
                return head
            if head is not None and head.death is not None:
                death, head.death = head.death, None
                self._orphans.appendleft(head)
                raise RuntimeError(death)
            if head is not None and head.is_complete:
                self._numbers.pop(self._spans.popleft().number)
                continue
            self._wait()

    def _take_over(
        self, head: Span, connection: WorkerClient, kind: int, items: Any, wire_states: Any
    ) -> Current | None:
        self._given += self._current[1]
        if kind == messages.ERROR:
            self._forget()
            self._raise(head, items, wire_states)
            return None
        self._pool.note_given(len(items))
        return self._hold(connection, kind, items, wire_states)

    def _raise(self, head: Span, packed: bytes | None, wire_state: int | bytes) -> None:
        """Raise a worker's exception, or continue from the state that it reports."""
        if isinstance(wire_state, int):
            self._given += 1
        else:
            found = pickle.loads(wire_state)
            if found["has_ended"]:
                self._go_on_from(found["state"])
                self._ended = True
                raise StopIteration
            self._go_on_from(found["state"])
        if packed is None:
            return
        error = unpack_error(packed)
        error.add_note(f"Worker {head.made_by} (process {head.made_by_pid}) raised this.")
        raise error

    # The position.

    def get_state(self) -> Any:
        """Return the state after the last element that was handed out."""
        wire_states = self._wire_states  # Another thread may close the iterator meanwhile.
        wire_state = wire_states[self._cursor - 1] if self._cursor and wire_states else None
        if isinstance(wire_state, bytes):
            return pickle.loads(wire_state)["state"]
        count = self._given + self._cursor
        # Return the given state unchanged before the first element: it may have additional keys.
        return self._positions.after(self._base, count) if count else self._base

    def set_state(self, state: Any) -> None:
        """Continue from `state`. Workers keep running."""
        self._go_on_from(state)

    def _go_on_from(self, state: Any) -> None:
        self._discard_all()
        self._pool.cancel()
        self._stand_at(state)

    def _discard_all(self) -> None:
        self._drop()
        for span in self._spans:
            for connection, kind, items, _ in span.arrived:
                discard(connection, kind, items)

    # Workers.

    def start(self) -> None:
        """Let the workers begin before the first `next`."""
        self._check_open()
        if not self._ended:
            self._pump()

    def close(self) -> None:
        """End the workers without waiting for them. Can be called more than once."""
        if self._closed:
            return
        with contextlib.suppress(Exception):  # It may have been interrupted at any point.
            self._base = self.get_state()
        self._closed = True
        self._pool.close()
        self._stand_at(self._base)

    def _pump(self) -> None:
        """Receive the messages that have arrived, and assign new spans."""
        for worker in self._pool.ready(0):
            self._receive(worker)
        self._deal()
        self._pumped_at = time.perf_counter()

    def _wait(self) -> None:
        """Wait for a message."""
        self._deal()
        head = self._spans[0] if self._spans else None
        for worker in self._pool.wait(head):
            self._receive(worker)

    def _receive(self, worker: PooledWorker) -> None:
        connection = worker.connection
        worker.heard_at = time.perf_counter()
        try:
            while (message := connection.receive_arrived()) is not None:
                self._take(worker, message)
                if not connection.is_open:  # `_give_up` has dismissed the worker.
                    return
        except EOFError:
            if not connection.is_open:
                wait_if_exiting()
                self._closed = True
            self._check_open()
            self._disown(self._pool.bury(worker))
        except BaseException:
            # Interrupted, perhaps in the middle of a message.
            if connection.is_open and worker in self._pool.workers:
                self._disown(self._pool.dismiss(worker))
            raise
        else:
            if worker.is_leaving and not worker.queue:
                self._pool.dismiss(worker)

    def _disown(self, spans: list[Span]) -> None:
        """Queue the unfinished spans of a worker for other workers."""
        for span in spans:
            if isinstance(span.last_wire_state, bytes):
                # The number of remaining elements is unknown, so continue from the last state.
                span.arrived.append((span.source, messages.ERROR, None, span.last_wire_state))
                span.received += 1
            elif span.death is None:
                self._orphans.append(span)
        self._orphans = deque(sorted(self._orphans, key=lambda span: span.start))

    def _take(self, worker: PooledWorker, message: Any) -> None:
        """Add a message to its span."""
        kind, number = message[0], message[1]
        span = self._numbers.get(number)
        connection = worker.connection
        if kind == messages.ERROR and message[4]:
            self._give_up(worker, message[2], is_old=bool(number) and span is None)
            return
        if not worker.is_set_up:
            self._pool.note_set_up(worker)
        if span is None:  # Sent before the last call of `set_state`.
            if kind == messages.RECORDS:
                discard(connection, kind, message[3])
            return
        if kind == messages.END:
            span.is_complete = True
            worker.finish(span)
            if span.received:
                self._learn_seconds(message[2] / span.received)
            return
        span.source = connection
        span.made_by, span.made_by_pid = worker.index, connection.worker_pid
        if kind == messages.ERROR:
            _, _, packed, wire_state, _ = message
            span.received += 1
            span.last_wire_state = wire_state
            is_over = isinstance(wire_state, bytes) and pickle.loads(wire_state)["is_over"]
            span.arrived.append((connection, kind, None if is_over else packed, wire_state))
            return
        items, wire_states = message[3], message[4]
        span.received += len(items)
        span.last_wire_state = wire_states[-1]
        span.arrived.append((connection, kind, items, wire_states))
        nbytes = connection.nbytes_of(items[0], kind)
        self._nbytes = max(nbytes, self._nbytes + 0.2 * (nbytes - self._nbytes))

    def _give_up(self, worker: PooledWorker, packed: bytes, is_old: bool) -> None:
        """Dismiss a worker that failed to start or to go to a state, and raise its exception.

        The exception is ignored if it happened before the last call of `set_state`.
        """
        index, pid = worker.index, worker.connection.worker_pid
        self._disown(self._pool.dismiss(worker))
        if is_old:
            return
        error = unpack_error(packed)
        error.add_note(f"Worker {index} (process {pid}) raised this while it was being set up.")
        raise error

    # Assigning spans.

    def _learn_seconds(self, seconds: float) -> None:
        known = self._seconds
        self._seconds = seconds if known is None else known + 0.3 * (seconds - known)

    def _room(self) -> int:
        """Return how many elements may be ready or being made."""
        small = min(_ROOM_ELEMENTS, int(_ROOM_BYTES / max(1.0, self._nbytes)))
        each = max(2 * self._buffer_size + 1, small)
        return each * self._pool.wanted * self._pool.room_factor

    def _deal(self) -> None:
        """Assign spans to the least busy workers while there is room."""
        pool = self._pool
        outstanding = self._planned - self._given - self._cursor
        pool.adjust(int(outstanding * self._nbytes))
        seconds = self._seconds
        depth_s = min(max(_SMALLEST_DEPTH_S, 2 * self._away_s), _LARGEST_DEPTH_S)
        while True:
            worker = pool.least_busy()
            if worker is None:
                return
            if len(worker.queue) > 1 and (seconds is None or worker.pending * seconds >= depth_s):
                return
            span = self._orphans.popleft() if self._orphans else self._new_span()
            if span is None and not worker.queue:
                span = self._reclaimed()
            if span is None:
                return
            state = self._base
            done = span.start + span.received
            if done:
                state = self._positions.after(state, done)
            left = span.count - span.received
            packed = dumps((state, left, span.is_last, span.is_suspect))
            worker.give(span, packed)

    def _reclaimed(self) -> Span | None:
        """Steal a span that a held-up worker has not begun, for an idle worker."""
        span = self._pool.take_from_busiest()
        if span is not None:
            # With a new number, elements that the other worker may still send are ignored.
            del self._numbers[span.number]
            self._number(span)
        return span

    def _number(self, span: Span) -> None:
        span.number = self._next_number
        self._next_number += 1
        self._numbers[span.number] = span

    def _new_span(self) -> Span | None:
        if self._has_planned_end:
            return None
        outstanding = self._planned - self._given - self._cursor
        room = self._room()
        fitting = _LONGEST_SPAN
        if self._seconds is not None:
            fitting = max(1, int(_SPAN_S / max(self._seconds, 1e-9)))
            self._size = max(1, min(fitting, self._size * _GROWTH, _LONGEST_SPAN))
        size = max(1, min(self._size, room // (2 * self._pool.wanted)))
        if outstanding and outstanding + size > room:
            self._pool.note_full()
            return None
        size = min(size, self._length - self._planned)
        span = Span(self._planned, size)
        self._number(span)
        self._planned += size
        if self._planned >= self._length:
            span.is_last = self._has_planned_end = True
        self._spans.append(span)
        return span
