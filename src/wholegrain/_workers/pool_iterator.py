"""Spans of a pipeline, dealt out to however many workers there are, and given in order.

    consumer: next()                 workers: each has a span in work, and the next in line
        |                                |
        |  takes the head's elements     |  who is done is given the next one, if there is room
        v                                v
    [ 0..63: all here ][ 64..127: in work ][ 128..191: all here ][ 192..255: in work ] ...

A span is a state to go to and a number of elements. Who makes it changes nothing, so workers
can come, go and die: what one has not sent, another makes.

Nothing runs in the background here: when the consumer comes for elements, what has arrived is
taken in, and workers are given as much as keeps them busy until it comes again.
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
"""A span is made so long that it takes about so much time to make."""

_SMALLEST_DEPTH_S = 50e-3
_LARGEST_DEPTH_S = 1.0
"""Workers are given work for at least, and for at most, so much time."""

_ROOM_BYTES = 4 << 20
_ROOM_ELEMENTS = 8192
"""So many may be ready for each worker, where they are small."""

_LONGEST_SPAN = 4096
_GROWTH = 4
_PUMP_EVERY_S = 0.5e-3


class Positions(Protocol):
    """States by arithmetic."""

    def left(self, state: Any, /) -> int:
        """Return how many elements follow after `state`."""

    def after(self, state: Any, count: int, /) -> Any:
        """Return the state that many elements after `state`."""


class PoolIterator(Inbox[T]):
    """Gives the elements of a pipeline in order, made by workers that share it out.

    What a worker runs takes `(state, count, is_last, is_suspect)` for its state: where to start,
    how many elements to make, whether to go on to the end and tell the state there, and whether
    to make one after the other, since one of them may kill it. Its own states are
    `{"next_index": made}` as long as positions follow from that number. Then, or at the end of
    the data, they have `"state"`: where it stands, `"has_ended"`: whether that is the end, and
    `"is_over"`: whether an exception only says so.

    Args:
        pool: The workers.
        positions: What state a number of elements leads to.
        state: Where to start.
        buffer_size: How many finished elements there should be for each worker.
    """

    def __init__(
        self, pool: WorkerPool, positions: Positions, state: Any, buffer_size: int
    ) -> None:
        super().__init__()
        self._pool = pool
        self._positions = positions
        self._buffer_size = buffer_size
        # Measured: seconds and bytes of an element, and how long the consumer stays away.
        self._seconds: float | None = None
        self._nbytes = 1.0
        self._away_s = 0.0
        self._left_at: float | None = None
        self._pumped_at = 0.0
        self._size = 1
        self._next_number = 1
        self._stand_at(state)

    def _stand_at(self, state: Any) -> None:
        """Forget all spans; what follows is counted from `state`."""
        self._base = state
        self._length = self._positions.left(state)
        self._planned = 0
        self._has_planned_end = False
        self._ended = False
        self._spans: deque[Span] = deque()
        self._orphans: deque[Span] = deque()
        self._numbers: dict[int, Span] = {}
        self._given = 0  # Before the current message.
        self._forget()

    # Elements.

    @property
    def _made_by(self) -> str:
        return "A worker"

    @property
    def _has_workers(self) -> bool:
        return bool(self._pool.workers)

    def _acknowledge(self, count: int) -> None:
        """Do nothing: workers are told with the next span what was taken."""

    def _next_message(self) -> Current:
        """Move on to the next elements; return what `_current` is then."""
        while True:
            try:
                head = self._next_arrived()
                arrived = head.arrived.popleft()
            except Exception as error:
                self._check_open()  # Another thread may have closed it in the middle.
                take_no_place(error)
                raise
            current = self._take_over(head, *arrived)
            if self._closed:
                self._stand_at(self._base)
                self._check_open()
            if current is not None:
                return current

    def _next_arrived(self) -> Span:
        """Wait until something has arrived for the first span; return that."""
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
        """Raise what a worker raised in an element's place, or go where it says it is."""
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
        wire_state = self._wire_states[self._cursor - 1] if self._cursor else None
        if isinstance(wire_state, bytes):
            return pickle.loads(wire_state)["state"]
        count = self._given + self._cursor
        # Where nothing was made there is nothing to add, and states may have more in them.
        return self._positions.after(self._base, count) if count else self._base

    def set_state(self, state: Any) -> None:
        """Go on from `state`. Workers keep running."""
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
        """Have the workers begin before the first element is asked for."""
        self._check_open()
        if not self._ended:
            self._pump()

    def close(self) -> None:
        """End the workers, without waiting for them. Can be called more than once."""
        if self._closed:
            return
        with contextlib.suppress(Exception):  # It may have been interrupted at any point.
            self._base = self.get_state()
        self._closed = True
        self._pool.close()
        self._stand_at(self._base)

    def _pump(self) -> None:
        """Take in what has arrived, and deal out what there is room for."""
        for worker in self._pool.ready(0):
            self._receive(worker)
        self._deal()
        self._pumped_at = time.perf_counter()

    def _wait(self) -> None:
        """Wait for something to arrive."""
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
                if not connection.is_open:  # It was of no use.
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
        """Have others make what somebody has not made."""
        for span in spans:
            if isinstance(span.last_wire_state, bytes):
                # How many are left does not follow from how many there are: go on from there.
                span.arrived.append((span.source, messages.ERROR, None, span.last_wire_state))
                span.received += 1
            elif span.death is None:
                self._orphans.append(span)
        self._orphans = deque(sorted(self._orphans, key=lambda span: span.start))

    def _take(self, worker: PooledWorker, message: Any) -> None:
        """Put a message where it belongs."""
        kind, number = message[0], message[1]
        span = self._numbers.get(number)
        connection = worker.connection
        if kind == messages.ERROR and message[4]:
            self._give_up(worker, message[2], is_old=bool(number) and span is None)
            return
        if not worker.is_set_up:
            self._pool.note_set_up(worker)
        if span is None:  # From before the last call of `set_state`.
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
        """Raise what a worker raised while it was being set up, or was to go to a state.

        Unless that was before the last call of `set_state`: the worker is of no use all the same.
        """
        index, pid = worker.index, worker.connection.worker_pid
        self._disown(self._pool.dismiss(worker))
        if is_old:
            return
        error = unpack_error(packed)
        error.add_note(f"Worker {index} (process {pid}) raised this while it was being set up.")
        raise error

    # Dealing out.

    def _learn_seconds(self, seconds: float) -> None:
        known = self._seconds
        self._seconds = seconds if known is None else known + 0.3 * (seconds - known)

    def _room(self) -> int:
        """Return how many elements may be ready or on their way."""
        small = min(_ROOM_ELEMENTS, int(_ROOM_BYTES / max(1.0, self._nbytes)))
        each = max(2 * self._buffer_size + 1, small)
        return each * self._pool.wanted * self._pool.room_factor

    def _deal(self) -> None:
        """Give the workers what there is room for."""
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
        """Return what a worker has not come to, for one that has nothing to do."""
        span = self._pool.take_from_busiest()
        if span is not None:
            # Under another number: if it was begun after all, that is not taken in.
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
