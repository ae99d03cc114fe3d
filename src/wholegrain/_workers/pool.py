"""The workers that a pipeline is dealt out to: who is there, and what each of them has to do."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wholegrain._read.controller import Controller, Observation
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._workers import client
from wholegrain._workers.backend import Backend, WorkerSpec
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.inbox import MOST_LOSSES, SINGLY_AFTER_DEATH, death_text

_log = logging.getLogger("wholegrain")

_NUDGE_AFTER_S = 1e-3
_LOOK_EVERY_S = 0.1
_MOST_EARLY_DEATHS = 5
_MEMORY_EVERY_S = 0.5


@dataclass(slots=True, eq=False)
class Span:
    """Some elements in a row that one worker makes.

    Args:
        start: How many elements come before it.
        count: How many elements it has.
    """

    start: int
    count: int
    number: int = 0  # What its messages are known by.
    is_last: bool = False
    is_complete: bool = False
    # What has arrived and was not handed out: from whom, its kind, the elements, the states.
    arrived: deque[tuple[Any, int, Any, Any]] = field(default_factory=deque)
    received: int = 0
    last_wire_state: int | bytes | None = None
    source: WorkerClient | None = None
    made_by: int = -1
    made_by_pid: int | None = None
    is_suspect: bool = False  # Whether somebody died who had it to make.
    losses: int = 0  # How often it is not known how somebody died who made it.
    died_at: int = -1  # The place at which somebody died who made it.
    death: str | None = None  # What to say of the second one who died there.


_HELD_UP_S = 0.2
"""A worker that sends nothing for so long is held up by one slow element."""


@dataclass(slots=True, eq=False)
class PooledWorker:
    """A worker, and the spans it was given and has not finished, in order."""

    index: int
    connection: WorkerClient
    queue: deque[Span] = field(default_factory=deque)
    is_leaving: bool = False
    is_set_up: bool = False
    heard_at: float = 0.0  # When it last sent something, or got something to do.

    @property
    def pending(self) -> int:
        """How many elements it still has to make."""
        return sum([span.count - span.received for span in self.queue])

    def give(self, span: Span, state: bytes) -> None:
        """Have it make a span, or what is left of one."""
        singly = SINGLY_AFTER_DEATH if span.is_suspect else 0
        self.connection.assign(span.number, state, singly)
        if not self.queue:
            self.heard_at = time.perf_counter()
        self.queue.append(span)

    def finish(self, span: Span) -> None:
        """Note that a span is complete."""
        if span in self.queue:
            self.queue.remove(span)


class WorkerPool:
    """Workers that come and go.

    Args:
        settings: Returns what worker `index` needs to start; called once for each.
        controller: Says how many there should be.
        backend: What starts them.
    """

    def __init__(
        self, settings: Callable[[int], WorkerSpec], controller: Controller, backend: Backend
    ) -> None:
        self._backend = backend
        self._settings: Callable[[int], WorkerSpec] | None = settings
        self._controller = controller
        self._fixed: int | None = None
        self.workers: list[PooledWorker] = []
        self._early_deaths = 0
        self._last_exit = ""
        self._reports: dict[int, Any] = {}
        # The current observation.
        self._since: float | None = None
        self._waited = 0.0
        self._given = 0
        self._was_full = False
        self._worker_bytes = 0
        self._measured_at = 0.0

    # How many.

    @property
    def wanted(self) -> int:
        """How many workers there should be."""
        return self._controller.wanted if self._fixed is None else self._fixed

    @property
    def room_factor(self) -> int:
        """How many times as many elements as at first may be held ready."""
        return self._controller.room

    def fix(self, count: int | None) -> None:
        """Have that many workers from now on; None to find out again what is best."""
        self._fixed = count

    def adjust(self, nbytes: int) -> None:
        """Start workers that are missing, and let go of those that are too many.

        Args:
            nbytes: How much memory the elements take that are ready or on their way.
        """
        self._observe(nbytes)
        if self._early_deaths >= _MOST_EARLY_DEATHS:
            self._early_deaths = 0
            raise RuntimeError(
                f"Worker process was terminated unexpectedly: {_MOST_EARLY_DEATHS} of them ended"
                f" while they were being started, the last one with {self._last_exit}."
                " The log has all of them. Code that is imported or unpickled there, or"
                " `worker_init_fn`, may have called `sys.exit` or `os._exit`."
            )
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
        self.workers.append(worker)
        if self._settings is None:  # Another thread has closed it, and has not seen this one.
            self.close()

    def least_busy(self) -> PooledWorker | None:
        """Return the worker with the least to do."""
        staying = [worker for worker in self.workers if not worker.is_leaving]
        return min(staying, key=lambda worker: (worker.pending, len(worker.queue)), default=None)

    def take_from_busiest(self) -> Span | None:
        """Take back what a worker has not begun: it is held up by an element before that.

        Not from one that goes on: it may have begun when it hears of it, and no function should
        run twice for an element.
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
        """Whether one has nothing to do while another has more than it is making."""
        lengths = [len(worker.queue) for worker in self.workers]
        return bool(lengths) and min(lengths) == 0 and max(lengths) > 1

    # What the controller has to know.

    def note_given(self, count: int) -> None:
        """Note that elements are handed out."""
        if self._since is None:
            # What comes before the first is the start, which says nothing.
            self._open_window(time.perf_counter())
        else:
            self._given += count

    def note_full(self) -> None:
        """Note that there was no room for more elements."""
        if any(not worker.queue for worker in self.workers):
            self._was_full = True

    def _observe(self, nbytes: int) -> None:
        if self._fixed is not None or self._since is None:
            return
        now = time.perf_counter()
        if not all(worker.is_set_up for worker in self.workers):
            # Until a new worker is there, nothing is to be seen of what it changes.
            self._open_window(now)
            return
        seconds = now - self._since
        if not self._controller.is_due(seconds, self._given):
            return
        if now - self._measured_at > _MEMORY_EVERY_S:
            self._measured_at = now
            handles = [worker.connection.handle for worker in self.workers]
            self._worker_bytes = sum(handle.memory_bytes() or 0 for handle in handles)
        seen = Observation(
            seconds, self._waited, self._given, self._was_full, nbytes, self._worker_bytes
        )
        self._controller.learn(seen)
        self._open_window(now)

    def _open_window(self, now: float) -> None:
        self._since, self._waited, self._given, self._was_full = now, 0.0, 0, False

    # Messages.

    def ready(self, timeout_s: float) -> list[PooledWorker]:
        """Return the workers from whom something has arrived."""
        if not self.workers:
            return []
        by_handle = {id(worker.connection.handle): worker for worker in self.workers}
        handles = [worker.connection.handle for worker in self.workers]
        return [by_handle[id(handle)] for handle in self._backend.wait(handles, timeout_s)]

    def wait(self, head: Span | None) -> list[PooledWorker]:
        """Wait until something arrives, `head` if possible; return from whom."""
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
        self._waited += time.perf_counter() - since
        return found

    def cancel(self) -> None:
        """Have all workers forget what they were given."""
        for worker in self.workers:
            if worker.queue:
                worker.queue.clear()
                worker.connection.cancel()

    def note_set_up(self, worker: PooledWorker) -> None:
        """Note that a worker has started."""
        worker.is_set_up = True
        self._early_deaths = 0

    # Ends.

    def reports(self) -> dict[int, Any]:
        """Return what workers last said of themselves, by the numbers of their processes.

        Those that have gone are among them.
        """
        for worker in self.workers:
            connection = worker.connection
            if connection.worker_pid is not None and connection.report is not None:
                self._reports[connection.worker_pid] = connection.report
        return self._reports

    def _remove(self, worker: PooledWorker) -> list[Span]:
        self.reports()  # This one's is the last.
        self.workers.remove(worker)
        worker.connection.close()
        left = [span for span in worker.queue if not span.is_complete]
        worker.queue.clear()
        return left

    def dismiss(self, worker: PooledWorker) -> list[Span]:
        """End a worker; return what it has not finished."""
        return self._remove(worker)

    def bury(self, worker: PooledWorker) -> list[Span]:
        """Take note of a worker's death; return what it has not finished."""
        wait_if_exiting()  # Then all of them die, and that is no news.
        connection = worker.connection
        ended, pid, begun = connection.exit(), connection.worker_pid, connection.begun
        left = self._remove(worker)
        happened = f"Worker {worker.index} (process {pid}) ended unexpectedly with {ended.reason}."
        if not worker.is_set_up:
            self._early_deaths += 1
            self._last_exit = ended.reason
            _log.warning("%s It was being started.", happened)
            return left
        if not left:
            _log.warning("%s It had nothing to do.", happened)
            return left
        for span in left:
            # It may have died of any of them, because it reads ahead.
            span.is_suspect = True
        first = left[0]
        place = first.start + first.received
        # A suspect span counts only against a worker that said that it has begun it. And nothing
        # counts if the process that starts workers died, and all workers with it.
        is_blameless = ended.is_blameless or (first.died_at == place and begun != first.number)
        if is_blameless:
            first.losses += 1
            is_blameless = first.losses <= MOST_LOSSES
        if is_blameless or first.died_at != place:
            if not is_blameless:
                first.died_at = place
            _log.warning(
                "%s Another process goes on with element %d.%s",
                happened,
                place,
                f"\n{ended.report}" if ended.report else "",
            )
            return left
        first.died_at = -1
        first.death = death_text(
            ended,
            f"Two workers ended while making the same element: element {place} (counted from 0 at"
            " the start, or at the last restored state).",
        )
        return left

    def close(self) -> None:
        """End all workers, without waiting for them."""
        self._settings = None  # First: a worker that is just being started sees it afterwards.
        self.reports()
        workers, self.workers = self.workers, []
        for worker in workers:
            worker.connection.close()
