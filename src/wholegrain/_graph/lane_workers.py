"""Lanes run by worker processes, seen from the main process."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from wholegrain._core.errors import take_no_place
from wholegrain._core.types import State
from wholegrain._graph import run
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.lane_program import open_in_worker, state_from_wire
from wholegrain._graph.process_iterator import modules_of, pack_pipeline
from wholegrain._graph.shares import Shares
from wholegrain._read import machine
from wholegrain._read.controller import Controller, Observation
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._state.validate import copy_state
from wholegrain._workers.backend import resolve

if TYPE_CHECKING:
    from wholegrain._workers.remote_lanes import LaneStates, RemoteLanes

InitFn = Callable[[int, int], None]


class WorkerSettings(NamedTuple):
    """How many workers run lanes, and how.

    Args:
        workers: The number of workers; None to adapt it while they run.
        max_workers: The largest number if it is adapted; None for the number of available CPUs.
        max_memory_bytes: The memory that workers and elements may use if the number is adapted.
        buffer_size: How many finished elements each worker should have ready.
        worker_init_fn: Called once in each worker.
        backend: Starts the workers.
    """

    workers: int | None
    max_workers: int | None = None
    max_memory_bytes: int | None = None
    buffer_size: int = 1
    worker_init_fn: InitFn | None = None
    backend: Any = None

    def most(self, lanes: int) -> int:
        """Return the largest number of workers for so many lanes."""
        count = self.workers or self.max_workers or machine.available_cpus()
        return max(1, min(count, lanes))


class LaneWorkers:
    """Worker processes that run lanes, and the state of each lane after its last element.

    The consumer asks for an element of each lane in turn; a lane that has ended has no turn. If the
    number of workers changes, the lanes are dealt out again, each at its state.

    Args:
        shares: The lanes.
        context: The context of the run.
        dataset: The stage that reports name.
        settings: How many workers there are, and how they run.
        lanes: How many of the lanes they run.
    """

    def __init__(
        self,
        shares: Shares[Any],
        context: run.RunContext,
        dataset: Any,
        settings: WorkerSettings,
        lanes: int,
    ) -> None:
        self._shares = shares
        self._context = context
        self._dataset = dataset
        self._settings = settings
        self._lane_count = lanes
        self._most = settings.most(lanes)
        shared = context.but(lanes_here=-(-lanes // self._most))
        self._program = functools.cache(
            lambda: pack_pipeline(
                functools.partial(open_in_worker, shares, shared), shares.parents[0]
            )
        )
        self._states: LaneStates = {}
        self._turns: deque[int] = deque()
        self._workers: list[RemoteLanes] = []
        self._worker_of: dict[int, RemoteLanes] = {}
        self._is_dealt = False
        self._closed = False
        self._tuner = None if settings.workers is not None else _Tuner(self._most, settings)

    def open(self, lane: int) -> LaneIterator:
        """Return the iterator of a lane."""
        return LaneIterator(self, lane)

    # Elements.

    def start(self, turns: Iterable[int]) -> None:
        """Deal the lanes out to workers, in the order of their turns."""
        self._turns = deque(turns)
        self._deal()

    def next_of(self, lane: int) -> Any:
        """Return the next element of the lane whose turn it is."""
        if not self._is_dealt:
            self._deal()
        turns, worker = self._turns, self._worker_of[lane]
        taken = worker.turns_taken
        try:
            element = worker.next_of(lane)
        except StopIteration:
            turns.popleft()
            raise
        except BaseException:
            wait_if_exiting()  # Sockets may be closed at any point during shutdown.
            if worker.turns_taken > taken:
                turns.rotate(-1)
            raise
        turns.rotate(-1)
        if self._tuner is not None and self._tuner.is_changed(self._workers):
            self._is_dealt = False
        return element

    def _deal(self) -> None:
        try:
            self._assign()
        except Exception as error:
            take_no_place(error)
            raise

    def _assign(self) -> None:
        self.check_open()
        turns = self._turns
        count = min(len(turns), self._most if self._tuner is None else self._tuner.take_wanted())
        while len(self._workers) > max(count, 1):
            self._workers.pop().close()
        while len(self._workers) < count:
            self._workers.append(self._new_worker(len(self._workers)))
        # By their number, so that a lane usually stays with its worker.
        places = {lane: place for place, lane in enumerate(sorted(turns))}
        self._worker_of = {lane: self._workers[places[lane] % count] for lane in turns}
        for worker in self._workers:
            worker.assign(lane for lane in turns if self._worker_of[lane] is worker)
            worker.start_prefetch()
        self._is_dealt = True
        if self._closed:  # Another thread called `close` before it could see all workers.
            self.close()
            self.check_open()

    def _new_worker(self, index: int) -> RemoteLanes:
        settings, backend = self._settings, resolve(self._settings.backend)
        backend.prepare(modules_of(self._shares))
        # The rest is imported, and the pipeline packed, while the fork server starts.
        from wholegrain._workers.remote_lanes import RemoteLanes

        worker = RemoteLanes(
            self._program(),
            index,
            self._most,
            self._states,
            buffer_size=settings.buffer_size,
            min_shm_size=self._context.options.min_shm_size,
            worker_init_fn=settings.worker_init_fn,
            backend=backend,
        )
        observed = self._context.observed
        worker.waiting = functools.partial(observed.waiting, None, self._dataset, index)
        if self._tuner is not None:
            worker.waiting = functools.partial(self._tuner.waiting, worker.waiting)
        return worker

    # States.

    def state_of(self, lane: int) -> State | None:
        """Return the state of a lane after its last element; None at its start."""
        wire_state = self._states.get(lane)
        return None if wire_state is None else state_from_wire(wire_state)

    def put_at(self, lane: int, state: State) -> None:
        """Set the state at which a lane continues after the next `start`."""
        self.check_open()
        self._states[lane] = self.to_wire(state)

    def from_wire(self, lane: int, wire_state: int | bytes | None) -> State:
        """Return a state that `saved` has for a lane; None is its start."""
        return self.start_state_of(lane) if wire_state is None else state_from_wire(wire_state)

    def to_wire(self, state: State) -> bytes:
        """Return a state as workers send it."""
        from wholegrain._workers.pickling import dumps

        return dumps(state)

    def saved(self) -> LaneStates:
        """Return the states of all lanes, for `go_back`."""
        return self._states.copy()

    def go_back(self, saved: LaneStates | None) -> None:
        """Go back to the states that `saved` returned; `start` has to follow."""
        self._states.clear()
        self._states.update(saved or {})

    # Other methods.

    @property
    def worker_count(self) -> int:
        """How many workers there are, or will be when they start."""
        return len(self._workers) or (self._most if self._tuner is None else self._tuner.wanted)

    def runner_of(self, lane: int) -> str:
        """Return which worker runs a lane, for those who watch the run."""
        workers, worker = list(self._workers), self._worker_of.get(lane)
        return f"worker {workers.index(worker)}" if worker in workers else "no worker yet"

    @property
    def is_adaptive(self) -> bool:
        """Whether the number of workers may change."""
        return self._tuner is not None

    def set_worker_count(self, count: int | None) -> None:
        """Use `count` workers from the next element on; None adapts their number again."""
        if self._tuner is None:
            raise ValueError('The number of workers is fixed. Use num_workers="auto" to change it.')
        if count is not None and not 1 <= count <= self._lane_count:
            raise ValueError(
                f"{self._lane_count} lanes need from 1 to {self._lane_count} workers, but got"
                f" {count}."
            )
        self.check_open()
        self._tuner.fix(count)

    @property
    def progress(self) -> Any:
        """A value that changes whenever an element is taken."""
        return [worker.progress for worker in self._workers]

    def start_state_of(self, lane: int) -> State:
        """Return the state of a lane before its first element."""
        iterator = self._shares.open(lane, self._context)
        state = iterator.get_state()
        iterator.close()
        return state

    def tell_report(self) -> None:
        """Pass on the last reports of the workers."""
        for index, worker in enumerate(self._workers):
            self._context.observed.hear(self._dataset, index, worker.report)

    def check_open(self) -> None:
        """Raise if `close` was called."""
        if self._closed:
            raise closed_error()

    def close(self) -> None:
        """End the workers without waiting for them."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self.tell_report()


class LaneIterator(DatasetIterator[Any]):
    """The elements of one lane, which a worker makes."""

    closes_when_dropped = False  # The workers belong to all lanes together.

    def __init__(self, workers: LaneWorkers, lane: int) -> None:
        super().__init__()
        self._workers = workers
        self._lane = lane
        self._start_state: State | None = None

    def __next__(self) -> Any:
        return self._workers.next_of(self._lane)

    @property
    def reads_ahead(self) -> bool:
        return True

    def get_state(self) -> State:
        state = self._workers.state_of(self._lane)
        if state is not None:
            return state
        if self._start_state is None:
            self._start_state = self._workers.start_state_of(self._lane)
        return copy_state(self._start_state)  # type: ignore[no-any-return]

    def set_state(self, state: State) -> None:
        self._workers.put_at(self._lane, state)

    def start_prefetch(self) -> None:
        self._workers.check_open()

    def progress(self) -> Any:
        return self._workers.progress

    def close(self) -> None:
        """Do nothing: the workers are closed with the last of their lanes."""


class _Tuner:
    """Measures how long the consumer waits, and chooses the number of workers."""

    def __init__(self, most: int, settings: WorkerSettings) -> None:
        most_bytes = settings.max_memory_bytes or max(1 << 28, machine.available_memory() // 2)
        self._controller = Controller(most, most_bytes, grows_room=False)
        self._fixed: int | None = None
        self._taken = 0  # What was wanted when lanes were dealt out; there may be fewer lanes.
        self._current = 0
        self._since: float | None = None
        self._waited = 0.0
        self._given = 0

    @property
    def wanted(self) -> int:
        """How many workers there should be."""
        return self._controller.wanted if self._fixed is None else self._fixed

    def take_wanted(self) -> int:
        """Return how many workers there should be, because lanes are dealt out to them."""
        self._taken = self.wanted
        return self._taken

    def fix(self, count: int | None) -> None:
        """Use exactly `count` workers; None adapts the number again."""
        self._fixed = count

    def waiting(self, measured: Callable[[], Any]) -> Any:
        """Enter `measured`, and count its time as waiting."""
        return _Waiting(self, measured())

    def note_waited(self, seconds: float) -> None:
        """Add to the time that the consumer has waited."""
        self._waited += seconds

    def is_changed(self, workers: list[Any]) -> bool:
        """Count an element; return whether the number of workers should change."""
        self._given += 1
        if self._fixed is None and (self._given & 15 == 0 or self._waited > 0.1):
            self._learn(workers)
        return self.wanted != self._taken

    def _learn(self, workers: list[Any]) -> None:
        now = time.perf_counter()
        if self._since is None or len(workers) != self._current:
            # The time before the first element is start-up, which says nothing about the rate.
            self._since, self._waited, self._given = now, 0.0, 0
            self._current = len(workers)
            return
        seconds = now - self._since
        if self._controller.is_due(seconds, self._given):
            used = sum(worker.memory_bytes or 0 for worker in workers)
            seen = Observation(seconds, self._waited, self._given, False, 0, used)
            self._controller.learn(seen)
            self._since, self._waited, self._given = now, 0.0, 0


class _Waiting:
    def __init__(self, tuner: _Tuner, measured: Any) -> None:
        self._tuner = tuner
        self._measured = measured

    def __enter__(self) -> None:
        self._measured.__enter__()
        self._began = time.perf_counter()

    def __exit__(self, *exc_info: object) -> None:
        self._tuner.note_waited(time.perf_counter() - self._began)
        self._measured.__exit__(*exc_info)
