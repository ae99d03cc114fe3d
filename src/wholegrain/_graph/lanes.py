"""Lanes: a fixed number of shares that define the order, run by any number of workers.

Lane `l` of `n` is what worker `l` of `n` yields. So the elements, their order and the states are
those of `num_workers=n`, whether no worker runs the lanes, or one, or as many as there are lanes.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

from wholegrain._core.types import State, T
from wholegrain._graph import run
from wholegrain._graph.carrier import unpacking
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator, closed_error, run_ahead
from wholegrain._graph.lane_workers import InitFn, LaneWorkers, WorkerSettings
from wholegrain._graph.prefetching import ShardedDatasetIterator, ShardedIterDataset
from wholegrain._graph.shares import Shares, check_can_shard
from wholegrain._observe import outline
from wholegrain._observe.shown import WORKERS
from wholegrain.options import MultiprocessingOptions


class LanesIterDataset(ShardedIterDataset[T]):
    """The lanes of a pipeline, interleaved, and run in the consumer's process."""

    keeps_size = True
    checkpoint = ShardedIterDataset.checkpoint._replace(name="ProcessPrefetchIterDataset")

    def __init__(
        self, parent: IterDataset[T], lanes: int, sequential: bool, buffer_size: int = 1
    ) -> None:
        super().__init__(parent, lanes, buffer_size, sequential)

    def open(self) -> DatasetIterator[T]:
        context = run.current()
        return unpacking(LanesIterator(self, context), self, context.account)  # type: ignore[no-any-return]

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T]:
        return open_lane(self.shares, number, context.but(lanes_here=self._num_workers))

    def run_ahead(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        return iterator  # What reads ahead in a lane has its part of the threads.

    @property
    def always_runs_ahead(self) -> bool:
        return False

    def _label(self) -> str:
        return f"mp_prefetch ({outline.counted(self._num_workers, 'lane')}, {self._how_many})"

    @property
    def _how_many(self) -> str:
        return "no workers"

    def _about(self, name: str) -> str:
        return (
            f"{name}: the order and the states are those of {self._num_workers} workers. Here they"
            f" are run by {self._how_many}."
        )

    def __str__(self) -> str:
        return f"{type(self).__name__}(lanes={self._num_workers})"


class WorkerLanesIterDataset(LanesIterDataset[T]):
    """The lanes of a pipeline, interleaved, and run by worker processes."""

    runs_ahead = WORKERS

    def __init__(
        self, parent: IterDataset[T], lanes: int, sequential: bool, settings: WorkerSettings
    ) -> None:
        super().__init__(parent, lanes, sequential, settings.buffer_size)
        self._settings = settings
        self.workers: LaneWorkers | None = None

    def open(self) -> DatasetIterator[T]:
        context, opened = run.current(), copy.copy(self)
        opened.workers = LaneWorkers(self.shares, context, self, self._settings, self._num_workers)
        return unpacking(WorkerLanesIterator(opened, context), self, context.account)  # type: ignore[no-any-return]

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T]:
        assert self.workers is not None
        return self.workers.open(number)

    @property
    def always_runs_ahead(self) -> bool:
        return True

    @property
    def _how_many(self) -> str:
        count = self._settings.workers
        return "auto workers" if count is None else outline.counted(count, "worker")


class LanesIterator(ShardedDatasetIterator[T]):
    """A position in each lane, and in their turns."""

    @property
    def lanes_run_by(self) -> dict[int, str]:
        """What runs each lane, for those who watch the run."""
        ended = self._idle.copy()
        return {
            lane: "ended" if lane in ended else self._runner_of(lane)
            for lane in range(self._num_datasets)
        }

    def _runner_of(self, lane: int) -> str:
        return "this process"


class WorkerLanesIterator(LanesIterator[T]):
    """The same, with lanes that workers run."""

    @property
    def _workers(self) -> LaneWorkers:
        return self._dataset.workers  # type: ignore[attr-defined,no-any-return]

    def _runner_of(self, lane: int) -> str:
        return self._workers.runner_of(lane)

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if not self._running:
            self._fill_slots()
            first, count = self._next_slot, self._cycle_length
            slots = [(first + turn) % count for turn in range(count)]
            self._workers.start(slot for slot in slots if self._slots[slot] is not None)
            self._running = True

    def _ask_another(
        self, number: int, state: State | None, question: Callable[[DatasetIterator[T]], Any]
    ) -> Any:
        lane = open_lane(self._dataset.shares, number, self._context)
        with contextlib.closing(lane):
            if state is not None:
                lane.set_state(state)
            return question(lane)

    def tell_report(self) -> None:
        self._workers.tell_report()

    def close(self) -> None:
        super().close()
        self._workers.close()

    @property
    def worker_count(self) -> int:
        """How many workers there are, or will be when they start."""
        return self._workers.worker_count

    @property
    def is_adaptive(self) -> bool:
        """Whether the number of workers may change."""
        return self._workers.is_adaptive

    def set_worker_count(self, count: int | None) -> None:
        """Use `count` workers from the next element on; None adapts their number again."""
        self._workers.set_worker_count(count)


def open_lane(shares: Shares[T], number: int, context: run.RunContext) -> DatasetIterator[T]:
    """Return an iterator of a lane in this process, which at its end keeps its last state."""
    iterator = shares.open(number, context)
    context.observed.ids.add_share(iterator.opened_from, shares.parents[0])
    return run_ahead(iterator, 0) if iterator.moves_at_end else iterator


def worker_settings(
    options: MultiprocessingOptions, worker_init_fn: InitFn | None
) -> WorkerSettings | None:
    """Return how workers run lanes; None if there are no workers."""
    if options.num_workers == 0:
        return None
    count = None if options.num_workers == "auto" else options.num_workers
    buffer_size = options.per_worker_buffer_size
    return WorkerSettings(
        count,
        options.max_workers,
        options.max_memory_bytes,
        1 if buffer_size == "auto" else buffer_size,
        worker_init_fn,
        options.backend,
    )


def lanes_prefetch(
    ds: IterDataset[T],
    options: MultiprocessingOptions,
    worker_init_fn: InitFn | None,
    sequential_slice: bool,
) -> IterDataset[Any]:
    """Run a pipeline in lanes; see `MultiprocessingOptions`."""
    assert options.lanes is not None
    check_can_shard(ds, options.lanes, sequential_slice)
    settings = worker_settings(options, worker_init_fn)
    if settings is None:
        return LanesIterDataset(ds, options.lanes, sequential_slice)
    return WorkerLanesIterDataset(ds, options.lanes, sequential_slice, settings)
