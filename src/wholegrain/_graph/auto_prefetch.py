"""A pipeline in as many worker processes as help, with the elements and states of none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from wholegrain._core.types import State, T
from wholegrain._graph import run, tracking
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import (
    DatasetIterator,
    StageIterator,
    check_state_of,
    closed_error,
    go_to_state_of,
)
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._graph.process_iterator import modules_of, pack_pipeline
from wholegrain._graph.span_iterator import (
    FillingSpanIterator,
    SpanIterator,
    SpanReadIterator,
    reading_spans,
)
from wholegrain._graph.timed import worker_output
from wholegrain._observe.shown import WORKERS
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._state import workers
from wholegrain._state.counting import CountedStates, UncountableError
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import WrongStateError, copy_state
from wholegrain._workers.backend import resolve

if TYPE_CHECKING:
    from wholegrain._workers.pool import WorkerPool
    from wholegrain._workers.pool_iterator import PoolIterator
    from wholegrain._workers.program import Program

InitFn = Callable[[int, int], None]


class Caps(NamedTuple):
    """What workers may take.

    Args:
        max_workers: How many there may be; None for as many as there are processors to use.
        max_memory_bytes: What they and the elements that are ready may take; None for half of
            the memory that is available when the first one starts.
        buffer_size: How many elements should be ready for each; None to find out.
    """

    max_workers: int | None
    max_memory_bytes: int | None
    buffer_size: int | None


class AutoPrefetchIterDataset(OneParentIterNode[T]):
    """The parent, made by worker processes whose number is found out while they run."""

    keeps_size = True
    runs_ahead = WORKERS
    splits_own_time = False
    opens_later = True
    checkpoint = CheckpointSpec(position="parent")

    only_prefetches = True

    def __init__(
        self,
        parent: IterDataset[T],
        caps: Caps,
        worker_init_fn: InitFn | None = None,
        backend: Any = None,
    ) -> None:
        super().__init__(parent)
        self._backend = backend
        self._caps = caps
        self._worker_init_fn = worker_init_fn

    def open(self) -> DatasetIterator[T]:
        return AutoPrefetchIterator(
            self._parent, run.current(), self._caps, self._worker_init_fn, self._backend
        )

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        raise ValueError(
            "A pipeline that already runs in several workers cannot be dealt out once more. Use"
            " one prefetch with all the workers."
        )

    def _label(self) -> str:
        return "mp_prefetch (auto workers)"

    def _about(self, name: str) -> str:
        return (
            f"{name}: everything upstream runs in worker processes. Their number is adapted"
            " while they run, which changes neither the elements nor their order."
        )

    def __str__(self) -> str:
        return "AutoPrefetchIterDataset"


class AutoPrefetchIterator(StageIterator[T]):
    """A position in a pipeline that worker processes run, as if it ran here.

    Args:
        dataset: The pipeline.
        context: The run that it is part of.
        caps: What workers may take.
        worker_init_fn: Called once in each.
        backend: What starts them; see `MultiprocessingOptions`.
    """

    def __init__(
        self,
        dataset: IterDataset[T],
        context: run.RunContext,
        caps: Caps,
        worker_init_fn: InitFn | None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        self._backend = backend
        self._caps = caps
        self._context = context
        self._worker_init_fn = worker_init_fn
        self._states = CountedStates(dataset)
        # The same pipeline in this process, to ask about positions. It reads nothing.
        with run.entered(context.but(watch=None)):
            self._here: DatasetIterator[T] = dataset.__iter__()
        self._state = self._here.get_state()  # Until there are workers.
        self._dataset = dataset
        self._pooled: PoolIterator[T] | None = None
        self._pool: WorkerPool | None = None
        self._worker_count: int | None = None
        self._closed = False

    def __next__(self) -> T:
        try:
            pooled = self._pooled
            if pooled is None:
                with self._context.observed.starting():
                    return next(self._start())
            return next(pooled)
        except Exception:
            wait_if_exiting()  # Sockets are closed in the middle of anything.
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _start(self) -> PoolIterator[T]:
        self._check_open()
        backend = resolve(self._backend)
        backend.prepare(modules_of(self._dataset))
        # The rest is imported while what launches workers starts.
        from wholegrain._read import machine
        from wholegrain._read.controller import Controller
        from wholegrain._workers.pool import WorkerPool
        from wholegrain._workers.pool_iterator import PoolIterator

        caps = self._caps
        most = caps.max_workers or machine.available_cpus()
        most_bytes = caps.max_memory_bytes or max(1 << 28, machine.available_memory() // 2)
        program = functools.cache(functools.partial(_pack, self._dataset, self._context))
        settings = functools.partial(
            _settings, program, most, self._context.options.min_shm_size, self._worker_init_fn
        )
        controller = Controller(most, most_bytes, grows_room=caps.buffer_size is None)
        self._pool = WorkerPool(settings, controller, backend)
        self._pool.fix(self._worker_count)
        pooled: PoolIterator[T] = PoolIterator(
            self._pool, self._states, self._state, caps.buffer_size or 1
        )
        self._pooled = pooled
        try:
            self._check_open()
        except ValueError:
            pooled.close()  # Another thread has closed this iterator, and has not seen it.
            raise
        return pooled

    def start_prefetch(self) -> None:
        self._check_open()
        (self._pooled or self._start()).start()

    @property
    def reads_ahead(self) -> bool:
        return True

    # The number of workers.

    @property
    def worker_count(self) -> int:
        """How many workers there are, or will be when they start."""
        if self._pool is not None:
            return self._pool.wanted
        return self._worker_count or 1

    def set_worker_count(self, count: int | None) -> None:
        """Have that many workers from the next element on; None to let their number be found.

        The elements, their order and the states stay what they are.
        """
        if count is not None and count < 1:
            raise ValueError(f"There has to be at least one worker, but got {count}.")
        self._check_open()
        self._worker_count = count
        if self._pool is not None:
            self._pool.fix(count)

    # The position.

    def get_state(self) -> State:
        state: State = self._state if self._pooled is None else self._pooled.get_state()
        return copy_state(state)  # type: ignore[no-any-return]

    def go_to(self, state: State) -> None:
        self._check_open()
        state = _without_workers(state)
        # As the pipeline itself would have it, whatever else a checkpoint made of its numbers.
        go_to_state_of(self._here, state)
        state = self._here.get_state()
        if self._pooled is None:
            self._state = state
        else:
            self._pooled.set_state(state)

    def check_state(self, state: State) -> None:
        check_state_of(self._here, _without_workers(state))

    def _get_next_index(self) -> int:
        self._here.set_state(self.get_state())
        return self._here._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self._here._set_next_index(index)
        self.set_state(self._here.get_state())

    def tell_report(self) -> None:
        """Pass on what the workers last said of themselves."""
        if self._pool is not None:
            for pid, report in self._pool.reports().items():
                self._context.observed.hear(self._dataset, pid, report)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._pooled is not None:
            self._pooled.close()
            self.tell_report()
        self._here.close()

    def __str__(self) -> str:
        return f"AutoPrefetchDatasetIterator(worker_count={self.worker_count})"


def set_worker_count(iterator: Any, count: int | None) -> None:
    """Change how many workers a running pipeline has.

    The elements, their order and the states stay what they are.

    Args:
        iterator: Of a pipeline with `num_workers="auto"` in it, or of a DataLoader with
            `worker_count="auto"`.
        count: How many there are from now on; None to let their number be found out again.

    Example:
        >>> it = iter(ds.mp_prefetch(MultiprocessingOptions(num_workers="auto")).batch(32))
        >>> set_worker_count(it, 4)
    """
    found = list(_auto_iterators(iterator))
    if not found:
        raise ValueError(
            f"{iterator} has no workers whose number can change. With a fixed number, order and"
            ' states follow from it: use num_workers="auto".'
        )
    for one in found:
        one.set_worker_count(count)


def _auto_iterators(iterator: Any) -> Iterator[AutoPrefetchIterator[Any]]:
    if isinstance(iterator, AutoPrefetchIterator):
        yield iterator
        return
    inner = getattr(iterator, "_iterator", None)  # A DataLoader's.
    for parent in getattr(iterator, "_parents", () if inner is None else (inner,)):
        yield from _auto_iterators(parent)


def _without_workers(state: State) -> State:
    """Return the state of a pipeline without workers, of one that was saved with some."""
    whole = workers.join(state)
    saved = workers.states_of_workers(whole)
    if saved is not None:
        raise WrongStateError(
            f"The state was taken with {len(saved)} workers, and for this pipeline the order of"
            f" the elements depended on their number. Restore it with num_workers={len(saved)}."
        )
    return whole  # type: ignore[no-any-return]


def _pack(dataset: IterDataset[Any], context: run.RunContext) -> Program:
    factory = functools.partial(_open_in_worker, reading_spans(dataset), context)
    return pack_pipeline(factory, dataset)


def _open_in_worker(
    dataset: IterDataset[T], context: run.RunContext, number: int, count: int
) -> SpanIterator:
    tracking.set_up_worker(number)
    # Each is the only one: positions are those of the whole.
    alone = context.but(worker_index=0, worker_count=1)
    with run.entered(alone):
        iterator = dataset.__iter__()
    reader: Any = iterator
    while not isinstance(reader, SpanReadIterator):
        (reader,) = reader._parents
    output = worker_output(iterator, context.observed, dataset)
    kind = FillingSpanIterator if hasattr(output, "next_into") else SpanIterator
    return kind(output, reader, CountedStates(dataset))


def _settings(
    program: Callable[[], Program],
    most_workers: int,
    min_shm_size: int,
    worker_init_fn: InitFn | None,
    index: int,
) -> Any:
    from wholegrain._workers.backend import WorkerSpec
    from wholegrain._workers.pickling import dumps_by_value
    from wholegrain._workers.remote import default_hold_budget

    return WorkerSpec(
        program=program(),
        index=index,
        count=most_workers,
        buffer_size=1 << 40,  # How far to go is said with each span.
        min_shm_size=min_shm_size,
        init_fn=None if worker_init_fn is None else dumps_by_value(worker_init_fn),
        hold_budget=default_hold_budget(most_workers),
    )


def auto_prefetch(
    ds: IterDataset[T],
    caps: Caps,
    worker_init_fn: InitFn | None,
    sequential_slice: bool,
    backend: Any = None,
) -> IterDataset[T]:
    """Run a pipeline in as many processes as help; see `IterDataset.mp_prefetch`.

    Raises:
        ValueError: If the elements or their order would depend on the number of workers.
    """
    if caps.max_workers is not None and caps.max_workers < 1:
        raise ValueError(f"`max_workers` has to be at least 1, but got {caps.max_workers}.")
    if sequential_slice:
        raise ValueError(
            'num_workers="auto" keeps the order that the elements have without workers, but with'
            " `sequential_slice` the order depends on their number. Leave one of them out."
        )
    try:
        CountedStates(ds)
    except UncountableError as error:
        raise ValueError(
            'num_workers="auto" needs a pipeline in which the place of an element tells where it'
            " comes from, so that its number of workers can change without changing the elements."
            f" Here it does not: {error}. Put `mp_prefetch` before that stage, do the same on the"
            " MapDataset before `to_iter_dataset()`, or give the number of workers, with which"
            " the order of the elements is fixed then."
        ) from None
    return AutoPrefetchIterDataset(ds, caps, worker_init_fn, backend)
