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

import pickle
import time
from typing import Any, TypeVar

from wholegrain._core.errors import take_no_place
from wholegrain._core.interruption import suppress_errors
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._workers import messages
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.failures import unpack_error
from wholegrain._workers.inbox import Delivery, Inbox, discard
from wholegrain._workers.pace import Pace
from wholegrain._workers.pickling import dumps
from wholegrain._workers.plan import Plan, Positions
from wholegrain._workers.pool import PooledWorker, Span, WorkerPool

T = TypeVar("T")

_PUMP_EVERY_S = 0.5e-3


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
        self._pace = Pace(buffer_size)
        self._plan = Plan(positions, state)
        self._given = 0  # Elements before the current message.
        self._ended = False
        self._pumped_at = 0.0

    def _stand_at(self, state: Any) -> None:
        """Forget all spans, and count elements from `state`."""
        self._plan.start_at(state)
        self._given = 0
        self._ended = False
        self._forget()

    # Elements.

    @property
    def _made_by(self) -> str:
        return "A worker"

    @property
    def _has_workers(self) -> bool:
        return bool(self._pool.workers)

    def _acknowledge(self) -> None:
        """Do nothing: acknowledgements are sent with the next span."""

    def _next_message(self) -> Delivery:
        """Wait for the next message in order; return the new value of `_current`."""
        while True:
            try:
                head = self._next_arrived()
                arrived = head.arrived.popleft()
            except Exception as error:
                self._life.check()  # Another thread may have called `close` meanwhile.
                take_no_place(error)
                raise
            current = self._take_over(head, *arrived)
            if self._life.is_closed:
                self._stand_at(self._plan.base)
                self._life.check()
            if current is not None:
                return current

    def _next_arrived(self) -> Span:
        """Wait until a message has arrived for the first span; return the span."""
        self._life.check()
        if self._ended:
            raise StopIteration
        now = time.perf_counter()
        self._pace.note_call(now)
        if now - self._pumped_at > _PUMP_EVERY_S:
            self._pump()
        while True:
            head = self._plan.head
            if head is not None and head.arrived:
                self._pace.note_return()
                return head
            if head is not None and head.death is not None:
                death, head.death = head.death, None
                self._plan.orphan([head])
                raise RuntimeError(death)
            if head is not None and head.is_complete:
                self._plan.finish_head()
                continue
            self._wait()

    def _take_over(
        self, head: Span, connection: WorkerClient, kind: int, items: Any, wire_states: Any
    ) -> Delivery | None:
        self._given += self._current.size
        if kind == messages.ERROR:
            self._forget()
            self._raise(head, items, wire_states)
            return None
        self._pool.load.note_given(len(items))
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
        wire_state = self._current.last_wire_state(self._cursor)
        if isinstance(wire_state, bytes):
            return pickle.loads(wire_state)["state"]
        return self._plan.state_after(self._given + self._cursor)

    def set_state(self, state: Any) -> None:
        """Continue from `state`. Workers keep running."""
        self._go_on_from(state)

    def _go_on_from(self, state: Any) -> None:
        self._discard_all()
        self._pool.cancel()
        self._stand_at(state)

    def _discard_all(self) -> None:
        self._drop()
        for span in self._plan.spans:
            for connection, kind, items, _ in span.arrived:
                discard(connection, kind, items)

    # Workers.

    def start(self) -> None:
        """Let the workers begin before the first `next`."""
        self._life.check()
        if not self._ended:
            self._pump()

    def close(self) -> None:
        """End the workers without waiting for them. Can be called more than once."""
        if self._life.is_closed:
            return
        with suppress_errors():  # It may have been interrupted at any point.
            self._plan.base = self.get_state()
        self._life.is_closed = True
        self._pool.close()
        self._stand_at(self._plan.base)

    def _pump(self) -> None:
        """Receive the messages that have arrived, and assign new spans."""
        for worker in self._pool.ready(0):
            self._receive(worker)
        self._deal()
        self._pumped_at = time.perf_counter()

    def _wait(self) -> None:
        """Wait for a message."""
        self._deal()
        for worker in self._pool.wait(self._plan.head):
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
                self._life.is_closed = True
            self._life.check()
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
        unfinished = []
        for span in spans:
            if isinstance(span.last_wire_state, bytes):
                # The number of remaining elements is unknown, so continue from the last state.
                span.arrived.append((span.source, messages.ERROR, None, span.last_wire_state))
                span.received += 1
            elif span.death is None:
                unfinished.append(span)
        self._plan.orphan(unfinished)

    def _take(self, worker: PooledWorker, message: Any) -> None:
        """Add a message to its span."""
        kind, number = message[0], message[1]
        span = self._plan.find(number)
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
                self._pace.note_span(message[2] / span.received)
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
        self._pace.note_bytes(connection.nbytes_of(items[0], kind))

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

    @property
    def _outstanding(self) -> int:
        """How many elements are planned that were not handed out."""
        return self._plan.planned - self._given - self._cursor

    def _deal(self) -> None:
        """Assign spans to the least busy workers while there is room."""
        pool, plan = self._pool, self._plan
        pool.adjust(int(self._outstanding * self._pace.nbytes))
        while True:
            worker = pool.least_busy()
            if worker is None:
                return
            if len(worker.queue) > 1 and self._pace.is_enough(worker.pending):
                return
            span = plan.take_orphan() or self._new_span()
            if span is None and not worker.queue:
                span = self._reclaimed()
            if span is None:
                return
            state = plan.state_after(span.start + span.received)
            left = span.count - span.received
            worker.give(span, dumps((state, left, span.is_last, span.is_suspect)))

    def _reclaimed(self) -> Span | None:
        """Steal a span that a held-up worker has not begun, for an idle worker."""
        span = self._pool.take_from_busiest()
        if span is not None:
            self._plan.number(span)  # Elements that the other worker may still send are ignored.
        return span

    def _new_span(self) -> Span | None:
        if self._plan.has_end:
            return None
        workers = self._pool.wanted
        room = self._pace.room(workers * self._pool.room_factor)
        size = self._pace.span_size(room // (2 * workers))
        outstanding = self._outstanding
        if outstanding and outstanding + size > room:
            self._pool.note_full()
            return None
        return self._plan.add(size)
