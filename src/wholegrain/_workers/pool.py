"""A pool of workers for `num_workers="auto"`, with a queue of spans for each worker."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wholegrain._read.controller import Controller
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._workers import client
from wholegrain._workers.backend import Backend, WorkerSpec
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.deaths import EarlyDeaths, Suspect, death_text
from wholegrain._workers.load import Load

_log = logging.getLogger("wholegrain")

_NUDGE_AFTER_S = 1e-3
_LOOK_EVERY_S = 0.1


@dataclass(slots=True, eq=False)
class Span:
    """A contiguous range of elements given to one worker.

    Args:
        start: How many elements come before the span.
        count: How many elements the span has.
    """

    start: int
    count: int
    number: int = 0  # The generation of its messages.
    is_last: bool = False
    is_complete: bool = False
    # Messages not handed out yet: the client, the kind, the elements, the wire states.
    arrived: deque[tuple[Any, int, Any, Any]] = field(default_factory=deque)
    received: int = 0
    last_wire_state: int | bytes | None = None
    source: WorkerClient | None = None
    made_by: int = -1
    made_by_pid: int | None = None
    is_suspect: bool = False  # Whether a worker died while this span was in its queue.
    suspect: Suspect = field(default_factory=Suspect)  # Its element that may be the cause.
    death: str | None = None  # The error message once a second worker has died there.


_HELD_UP_S = 0.2
"""A worker that sends nothing for this long is considered to be held up by one slow element."""


@dataclass(slots=True, eq=False)
class PooledWorker:
    """A worker and the queue of its unfinished spans, in order."""

    index: int
    connection: WorkerClient
    queue: deque[Span] = field(default_factory=deque)
    round: int = 0  # The call of `adjust` in which it was started.
    is_leaving: bool = False
    is_set_up: bool = False
    heard_at: float = 0.0  # When it last sent a message, or received a span while idle.

    @property
    def pending(self) -> int:
        """How many elements of its queue it has not sent yet."""
        return sum([span.count - span.received for span in self.queue])

    def give(self, span: Span, state: bytes) -> None:
        """Assign a span, or the rest of one, to the worker."""
        singly = span.count - span.received if span.is_suspect else 0
        self.connection.assign(span.number, state, singly)
        if not self.queue:
            self.heard_at = time.perf_counter()
        self.queue.append(span)

    def finish(self, span: Span) -> None:
        """Remove a complete span from the queue."""
        if span in self.queue:
            self.queue.remove(span)


class WorkerPool:
    """Workers whose number changes while they run.

    Args:
        settings: Returns the spec of worker `index`; called once for each worker.
        controller: Decides how many workers there should be.
        backend: Starts the workers.
    """

    def __init__(
        self, settings: Callable[[int], WorkerSpec], controller: Controller, backend: Backend
    ) -> None:
        self._backend = backend
        self._settings: Callable[[int], WorkerSpec] | None = settings
        self._controller = controller
        self._fixed: int | None = None
        self.workers: list[PooledWorker] = []
        self._early_deaths = EarlyDeaths()
        self._round = 0
        self._reports: dict[int, Any] = {}
        self.load = Load(controller)
        """Measures how well the workers keep up with the consumer."""

    # The number of workers.

    @property
    def wanted(self) -> int:
        """How many workers there should be."""
        return self._controller.wanted if self._fixed is None else self._fixed

    @property
    def room_factor(self) -> int:
        """The factor by which the initial size of the buffer has grown."""
        return self._controller.room

    def fix(self, count: int | None) -> None:
        """Use exactly `count` workers from now on; None lets the controller decide again."""
        self._fixed = count

    def adjust(self, nbytes: int) -> None:
        """Start missing workers, and dismiss surplus ones once their queues are empty.

        Args:
            nbytes: How many bytes the elements occupy that are ready or being made.
        """
        self._observe(nbytes)
        self._round += 1
        self._early_deaths.check()
        staying = [worker for worker in self.workers if not worker.is_leaving]
        for worker in sorted(staying, key=lambda m: m.pending)[
            : max(0, len(staying) - self.wanted)
        ]:
            worker.is_leaving = True
            if not worker.queue:
                self.dismiss(worker)
        for _ in range(len(staying), self.wanted):
            leaving = next((m for m in self.workers if m.is_leaving), None)
            if leaving is not None:
                leaving.is_leaving = False
                continue
            self._start()

    def _start(self) -> None:
        settings = self._settings
        assert settings is not None
        taken = {worker.index for worker in self.workers}
        index = next(number for number in range(len(taken) + 1) if number not in taken)
        worker = PooledWorker(index, WorkerClient(self._backend, settings(index)))
        worker.round = self._round
        self.workers.append(worker)
        if self._settings is None:  # Another thread closed the pool before it saw this worker.
            self.close()

    def least_busy(self) -> PooledWorker | None:
        """Return the worker with the fewest pending elements."""
        staying = [worker for worker in self.workers if not worker.is_leaving]
        return min(staying, key=lambda worker: (worker.pending, len(worker.queue)), default=None)

    def take_from_busiest(self) -> Span | None:
        """Steal the last span of the longest queue, if its worker is held up by an earlier element.

        A worker that makes progress keeps its spans. It might begin the stolen span before the
        cancellation arrives, and no function should run twice for an element.
        """
        busiest = max(self.workers, key=lambda worker: len(worker.queue), default=None)
        if busiest is None or len(busiest.queue) < 2:
            return None
        span = busiest.queue[-1]
        if span.received or time.perf_counter() - busiest.heard_at < _HELD_UP_S:
            return None
        busiest.queue.pop()
        busiest.connection.cancel(span.number)
        return span

    @property
    def _has_idle(self) -> bool:
        """Whether one worker is idle while another has spans waiting in its queue."""
        lengths = [len(worker.queue) for worker in self.workers]
        return bool(lengths) and min(lengths) == 0 and max(lengths) > 1

    def note_full(self) -> None:
        """Record that the buffer had no room for another span."""
        if any(not worker.queue for worker in self.workers):
            self.load.note_full()

    def _observe(self, nbytes: int) -> None:
        if self._fixed is not None:
            return
        if all(worker.is_set_up for worker in self.workers):
            self.load.consider(nbytes, self._memory_bytes)
        else:
            self.load.note_starting()

    def _memory_bytes(self) -> int:
        handles = [worker.connection.handle for worker in self.workers]
        return sum(handle.memory_bytes() or 0 for handle in handles)

    # Messages.

    def ready(self, timeout_s: float) -> list[PooledWorker]:
        """Return the workers that have sent something or died."""
        if not self.workers:
            return []
        by_handle = {id(worker.connection.handle): worker for worker in self.workers}
        handles = [worker.connection.handle for worker in self.workers]
        return [by_handle[id(handle)] for handle in self._backend.wait(handles, timeout_s)]

    def wait(self, head: Span | None) -> list[PooledWorker]:
        """Wait until a message arrives; return the workers that sent one.

        The worker that makes `head` is nudged, because the consumer needs that span next.
        """
        since = time.perf_counter()
        found = self.ready(_NUDGE_AFTER_S)
        if not found:
            for worker in self.workers:
                if worker.queue and worker.queue[0] is head:
                    worker.connection.nudge()
            watching = self._fixed is None and self._controller.is_watching
            idle = self._has_idle
            quiet_s = _LOOK_EVERY_S if watching else client.QUIET_S
            found = self.ready(_HELD_UP_S if idle else quiet_s)
            for worker in self.workers if not found else ():
                if worker.queue and worker.queue[0] is head:
                    worker.connection.note_quiet()
        self.load.note_waited(time.perf_counter() - since)
        return found

    def cancel(self) -> None:
        """Cancel all spans of all workers."""
        for worker in self.workers:
            if worker.queue:
                worker.queue.clear()
                worker.connection.cancel()

    def note_set_up(self, worker: PooledWorker) -> None:
        """Record that a worker has started."""
        worker.is_set_up = True
        self._early_deaths.forget()

    # How workers end.

    def reports(self) -> dict[int, Any]:
        """Return the last report of each worker by process id, including ended workers."""
        for worker in self.workers:
            connection = worker.connection
            if connection.worker_pid is not None and connection.report is not None:
                self._reports[connection.worker_pid] = connection.report
        return self._reports

    def _remove(self, worker: PooledWorker) -> list[Span]:
        self.reports()  # Keep the last report of this worker.
        self.workers.remove(worker)
        worker.connection.close()
        left = [span for span in worker.queue if not span.is_complete]
        worker.queue.clear()
        return left

    def dismiss(self, worker: PooledWorker) -> list[Span]:
        """End a worker; return its unfinished spans."""
        return self._remove(worker)

    def bury(self, worker: PooledWorker) -> list[Span]:
        """Handle a worker's death; return its unfinished spans.

        If two workers have died at the same element, its span carries the error in `death`.
        """
        wait_if_exiting()  # During interpreter shutdown, workers are expected to disappear.
        connection = worker.connection
        ended, pid = connection.exit(), connection.worker_pid
        left = self._remove(worker)
        happened = f"Worker {worker.index} (process {pid}) ended unexpectedly with {ended.reason}."
        if not worker.is_set_up:
            self._early_deaths.note(worker.round, ended.reason)
            _log.warning("%s It was being started.", happened)
            return left
        if not left:
            _log.warning("%s It had nothing to do.", happened)
            return left
        first = left[0]
        position = first.start + first.received
        has_begun = connection.has_begun(first.number) if first.is_suspect else None
        for span in left:
            # Any of them may be the cause, because the worker reads ahead.
            span.is_suspect = True
        if first.suspect.note_death(position, ended, has_begun):
            first.death = death_text(
                ended,
                "Two workers ended while making the same element: element"
                f" {position} (counted from 0 at the start, or at the last restored state).",
            )
            return left
        _log.warning(
            "%s Another process continues with element %d.%s",
            happened,
            position,
            f"\n{ended.report}" if ended.report else "",
        )
        return left

    def close(self) -> None:
        """End all workers without waiting for them."""
        self._settings = None  # First, so that `_start` in another thread sees it afterwards.
        self.reports()
        workers, self.workers = self.workers, []
        for worker in workers:
            worker.connection.close()
