"""Runs a pipeline in several threads or processes, each on its share of the data."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._core.types import State, T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph import run
from wholegrain._graph.carrier import unpacking
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator, check_state_of
from wholegrain._graph.nodes.interleave import InterleaveDatasetIterator, InterleaveIterDataset
from wholegrain._graph.nodes.thread_prefetch import ThreadPrefetchDatasetIterator
from wholegrain._graph.process_iterator import ProcessIterator, modules_of, pack_pipeline
from wholegrain._graph.shares import Shares, check_can_shard
from wholegrain._graph.user_functions import check_arguments
from wholegrain._observe import outline
from wholegrain._observe.shown import THREADS, WORKERS
from wholegrain._read import machine
from wholegrain._state import counting, workers
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import WrongStateError, wrong_state
from wholegrain._workers.backend import resolve
from wholegrain.options import MultiprocessingOptions

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer
    from wholegrain._workers.program import Program


class ShardedIterDataset(InterleaveIterDataset[T]):
    """The shares of a pipeline, interleaved: one element of each worker in turn.

    Seeds and element specs are those of the pipeline without workers.
    """

    checkpoint = CheckpointSpec(
        fixed=("sequential",), free=("num_workers", "iter_buffer_size"), position="parent"
    )

    only_prefetches = True
    takes_turns = True

    def __init__(
        self, parent: IterDataset[T], num_workers: int, buffer_size: int, sequential: bool
    ) -> None:
        shares: Any = range(num_workers)
        super().__init__(shares, cycle_length=num_workers, iter_buffer_size=buffer_size)
        self._parents = (parent,)
        self._sequential = sequential
        self._num_workers = num_workers
        if sequential:
            # The positions of workers in contiguous parts have no meaning for the whole pipeline.
            self.checkpoint = self.checkpoint._replace(position="own")

    def open(self) -> DatasetIterator[T]:
        context = run.current()
        return unpacking(ShardedDatasetIterator(self, context), self, context.account)  # type: ignore[no-any-return]

    @property
    def shares(self) -> Shares[T]:
        """The shares that the workers run."""
        return Shares(self._parent, self._num_workers, self._sequential)

    @property
    def traced_inputs(self) -> tuple[Any, ...]:
        """The pipeline that the workers run."""
        return self._parents

    def _traced(self, tracer: Tracer) -> Any:
        from wholegrain._graph.traced_lanes import TracedLanes  # It imports this module.

        return TracedLanes(self._parent, self._num_workers, self._sequential, tracer)

    @property
    def is_one_to_one(self) -> bool:
        """Whether a state can be translated to another number of workers."""
        return not self._sequential and counting.is_one_to_one(self._parent)

    @property
    def always_runs_ahead(self) -> bool:
        return True

    @property
    def make_ahead(self) -> tuple[int, int]:
        return 0, 0  # All shares are open from the start.

    @property
    def _element_spec(self) -> Any:
        return self._parent._element_spec

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        raise ValueError(
            "A pipeline that already runs in several workers cannot be split among workers again."
            " Use one prefetch with all the workers."
        )


class ShardedDatasetIterator(InterleaveDatasetIterator[T]):
    """An iterator over the shares of all workers.

    If elements and positions correspond one to one, it also restores a state that was saved with
    another number of workers, or without workers.
    """

    _dataset: ShardedIterDataset[T]

    def _end_slot(self, slot: int) -> None:
        iterator = self._slots[slot]
        if iterator is not None:
            self._last_states[slot] = iterator.get_state()
            # A worker at the end of its share keeps running, because the next epoch needs it.
            self._idle[slot] = iterator
            self._slots[slot] = None

    def _close_idle(self) -> None:
        if self._closed:
            super()._close_idle()

    def go_to(self, state: State) -> None:
        super().go_to(self._translated(state))

    def check_state(self, state: State) -> None:
        state = self._translated(state)
        super().check_state(state)
        numbers = list(state["iterators_in_use_indices"])
        if numbers != list(range(len(numbers))):
            raise wrong_state(self, f"its workers are {numbers}, and not in order")
        # Check the states here, because workers would raise only after the restore.
        for number, worker_state, has_ended in zip(
            state["iterators_in_use_indices"],
            state["iterators_in_use_states"],
            state["exhausted"],
            strict=False,
        ):
            if worker_state is None or has_ended:
                continue
            try:
                share = self._dataset.shares.open(number, self._context)
            except Exception as error:
                if is_interruption(error):
                    raise
                return  # The share may need something that exists only in workers.
            try:
                check_state_of(share, worker_state)
            finally:
                share.close()

    def _translated(self, state: State) -> State:
        """Return the state for this number of workers, if it was saved with another number."""
        saved = workers.states_of_workers(state) or ()
        if len(saved) == self._num_datasets:
            return state
        whole = workers.join(state) if self._dataset.is_one_to_one else None
        translated = workers.split(whole, self._num_datasets)
        if translated is None:
            raise WrongStateError(
                f"The state was taken with {len(saved)} workers, but here are"
                f" {self._num_datasets}. For this pipeline, or this state, the order of the"
                " elements depends on the number of workers: restore it with the same number."
            )
        return translated


class MultithreadPrefetchIterDataset(ShardedIterDataset[T]):
    """The shares of a pipeline, each run by a thread."""

    keeps_size = True
    runs_ahead = THREADS
    splits_own_time = False

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T]:
        iterator = self.shares.open(number, context)
        context.observed.ids.add_share(iterator.opened_from, self._parent)
        return iterator

    def run_ahead(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        if isinstance(iterator, ThreadPrefetchDatasetIterator):
            return iterator
        return ThreadPrefetchDatasetIterator(iterator, self._iter_buffer_size).not_from_start()

    def _label(self) -> str:
        return f"multithread_prefetch ({outline.counted(self._num_workers, 'thread')})"

    def _about(self, name: str) -> str:
        count = self._num_workers
        return f"{name}: everything upstream runs in {count} threads, each on its share."

    def __str__(self) -> str:
        return f"MultithreadPrefetchIterDataset(num_threads={self._num_workers})"


def multithread_prefetch(
    ds: IterDataset[T], num_threads: int, buffer_size: int, sequential_slice: bool = False
) -> IterDataset[T]:
    """Run a pipeline in several threads of this process, each on its share of the data.

    Args:
        ds: The pipeline.
        num_threads: How many threads; 0 returns `ds` itself.
        buffer_size: How many finished elements each thread may buffer.
        sequential_slice: Whether each thread reads a contiguous part of the sources instead of
            every n-th element.
    """
    num_threads = whole_count("num_threads", num_threads)
    if num_threads < 0:
        raise ValueError(f"`num_threads` cannot be negative, but got {num_threads}.")
    if num_threads == 0:
        return ds
    check_can_shard(ds, num_threads, sequential_slice)
    return MultithreadPrefetchIterDataset(ds, num_threads, buffer_size, sequential_slice)


class ProcessPrefetchIterDataset(ShardedIterDataset[T]):
    """The shares of a pipeline, each run by a worker process."""

    keeps_size = True
    runs_ahead = WORKERS

    def __init__(
        self,
        parent: IterDataset[T],
        num_workers: int,
        buffer_size: int,
        sequential: bool,
        worker_init_fn: Callable[[int, int], None] | None,
        backend: Any = None,
    ) -> None:
        super().__init__(parent, num_workers, buffer_size, sequential)
        self._backend = backend
        self._worker_init_fn = worker_init_fn
        self._program: Callable[[], Program] | None = None
        self._copy_of: ProcessPrefetchIterDataset[T] = self

    def open(self) -> DatasetIterator[T]:
        context = run.current()
        # The pipeline is packed once for all workers, when the first one starts.
        opened = copy.copy(self)
        opened._copy_of = self
        opened._program = functools.cache(
            lambda: pack_pipeline(
                functools.partial(self.shares.open_in_worker, context), self._parent
            )
        )
        return unpacking(ShardedDatasetIterator(opened, context), self, context.account)  # type: ignore[no-any-return]

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T]:
        assert self._program is not None
        iterator: ProcessIterator[T] = ProcessIterator(
            self._program,
            modules_of(self.shares),
            functools.partial(self.shares.open, number, context),
            worker_index=number,
            worker_count=self._num_workers,
            buffer_size=self._iter_buffer_size,
            min_shm_size=context.options.min_shm_size,
            worker_init_fn=self._worker_init_fn,
            backend=resolve(self._backend),
        )
        iterator.keep_report = functools.partial(context.observed.hear, self._copy_of)
        iterator.waiting = functools.partial(context.observed.waiting, None, self._copy_of, number)
        return iterator

    def run_ahead(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        return iterator  # A worker always runs ahead.

    def _label(self) -> str:
        return f"mp_prefetch ({outline.counted(self._num_workers, 'worker')})"

    def _about(self, name: str) -> str:
        count, buffer = self._num_workers, self._iter_buffer_size
        share = "in contiguous parts" if self._sequential else "in turn"
        where = "1 process" if count == 1 else f"{count} processes, which share the data {share}"
        return (
            f"{name}: everything upstream runs in {where}. Each keeps about {2 * buffer + 1}"
            " finished elements ready. Arrays are passed through shared memory, without a copy."
        )

    def __str__(self) -> str:
        return f"ProcessPrefetchIterDataset(num_workers={self._num_workers})"


def process_prefetch(
    ds: IterDataset[T],
    options: MultiprocessingOptions | None,
    worker_init_fn: Callable[[int, int], None] | None,
    sequential_slice: bool,
) -> IterDataset[T]:
    """Run a pipeline in several processes; see `IterDataset.mp_prefetch`."""
    options = options or MultiprocessingOptions(num_workers=10)
    if not hasattr(options, "num_workers"):
        raise TypeError(
            "`mp_prefetch` needs options, such as `MultiprocessingOptions(num_workers=4)`, but got"
            f" {options!r}."
        )
    if worker_init_fn is not None:
        if not callable(worker_init_fn):
            raise TypeError(f"`worker_init_fn` has to be a function, but got {worker_init_fn!r}.")
        check_arguments("worker_init_fn", worker_init_fn, ("worker_index", "worker_count"))
    num_workers, buffer_size = options.num_workers, options.per_worker_buffer_size
    for name, value in (("num_workers", num_workers), ("per_worker_buffer_size", buffer_size)):
        if isinstance(value, str) and value != "auto":
            raise ValueError(f'`{name}` has to be a number or "auto", but got {value!r}.')
    if buffer_size != "auto" and buffer_size <= 0 and num_workers != 0:
        raise ValueError(
            "Each worker has to hold at least one element ready, but got"
            f" per_worker_buffer_size={buffer_size}."
        )
    backend = getattr(options, "backend", None)  # Grain's own options have none.
    lanes = getattr(options, "lanes", None)
    in_threads = isinstance(backend, str) and backend == "threads"
    if in_threads:
        _check_for_threads(num_workers, lanes, worker_init_fn)
    elif backend is not None:
        resolve(backend)
    if lanes is not None:
        from wholegrain._graph.lanes import lanes_prefetch

        return lanes_prefetch(ds, options, worker_init_fn, sequential_slice)
    if num_workers == "auto":
        from wholegrain._graph.auto_prefetch import Caps, auto_prefetch

        most_ready = None if buffer_size == "auto" else buffer_size
        caps = Caps(options.max_workers, options.max_memory_bytes, most_ready)
        return auto_prefetch(ds, caps, worker_init_fn, sequential_slice, backend)
    if num_workers < 0:
        raise ValueError(f"`num_workers` cannot be negative, but got {num_workers}.")
    if num_workers == 0:
        return ds
    if buffer_size == "auto":
        raise ValueError(
            'per_worker_buffer_size="auto" needs num_workers="auto", but got num_workers='
            f"{num_workers}. Give the number of elements that each worker may hold ready."
        )
    check_can_shard(ds, num_workers, sequential_slice)
    if in_threads or (backend is None and _prefers_threads()):
        if worker_init_fn is not None:
            logger().warning(
                "`worker_init_fn` is not called: Python runs without the GIL, so threads of this"
                " process replace worker processes."
            )
        return multithread_prefetch(ds, num_workers, buffer_size, sequential_slice)
    return ProcessPrefetchIterDataset(
        ds, num_workers, buffer_size, sequential_slice, worker_init_fn, backend
    )


def _check_for_threads(num_workers: Any, lanes: Any, worker_init_fn: Any) -> None:
    """Raise if something is asked for that only worker processes do."""
    if num_workers == "auto":
        raise ValueError(
            'backend="threads" needs a number of threads, but got num_workers="auto". To have the'
            " number of threads adjusted, leave `mp_prefetch` out: reading ahead does that."
        )
    if lanes is not None:
        raise ValueError(
            f'backend="threads" has no lanes, but got lanes={lanes}. Without them, num_workers='
            f"{lanes} gives the same elements in the same order."
        )
    if worker_init_fn is not None:
        raise ValueError(
            'backend="threads" starts no processes that `worker_init_fn` could prepare. Call it'
            " here instead, if this process needs it."
        )


def _prefers_threads() -> bool:
    """Return whether threads replace processes: Python has no GIL, and none were asked for."""
    return not machine.has_gil() and not os.environ.get("WHOLEGRAIN_WORKER_START")
