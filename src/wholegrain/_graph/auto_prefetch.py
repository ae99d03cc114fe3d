"""`num_workers="auto"`: an adaptive number of workers that changes neither elements nor states."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from wholegrain._core.types import State, T
from wholegrain._graph import run
from wholegrain._graph.carrier import carrying, unpacking
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
from wholegrain._observe.tracking import set_up_worker
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._state import workers
from wholegrain._state.counting import CountedStates, UncountableError
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import WrongStateError, copy_state
from wholegrain._workers.backend import resolve

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer
    from wholegrain._workers.pool import WorkerPool
    from wholegrain._workers.pool_iterator import PoolIterator
    from wholegrain._workers.program import Program

InitFn = Callable[[int, int], None]


class Caps(NamedTuple):
    """Limits for workers.

    Args:
        max_workers: The largest number of workers; None for what the backend allows.
        max_memory_bytes: The memory that workers and buffered elements may use; None for half of
            the memory that is available when the first worker starts.
        buffer_size: How many elements should be ready for each worker; None to adapt it.
    """

    max_workers: int | None
    max_memory_bytes: int | None
    buffer_size: int | None


class AutoPrefetchIterDataset(OneParentIterNode[T]):
    """The parent's elements, made by worker processes whose number is adapted while they run."""

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
        context = run.current()
        iterator = AutoPrefetchIterator(
            self._parent, context, self._caps, self._worker_init_fn, self._backend
        )
        return unpacking(iterator, self, context.account)  # type: ignore[no-any-return]

    def _traced(self, tracer: Tracer) -> Any:
        return tracer(self._parent)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        raise ValueError(
            "A pipeline that already runs in several workers cannot be split among workers again."
            " Use one prefetch with all the workers."
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
    """An iterator over a pipeline in worker processes, with the states of the pipeline itself.

    Args:
        dataset: The pipeline.
        context: The context of its run.
        caps: Limits for workers.
        worker_init_fn: Called once in each worker.
        backend: Starts the workers; see `MultiprocessingOptions`.
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
        # The same pipeline in this process, to compute positions. It reads no elements.
        with run.entered(context):
            self._here: DatasetIterator[T] = dataset.__iter__()
        self._state = self._here.get_state()  # Only used before the workers start.
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
            wait_if_exiting()  # Sockets may be closed at any point during shutdown.
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _start(self) -> PoolIterator[T]:
        self._check_open()
        backend = resolve(self._backend)
        backend.prepare(modules_of(self._dataset))
        # The rest is imported while the fork server starts.
        from wholegrain._read import machine
        from wholegrain._read.controller import Controller
        from wholegrain._workers.pool import WorkerPool
        from wholegrain._workers.pool_iterator import PoolIterator

        caps = self._caps
        most = caps.max_workers or backend.max_workers() or machine.available_cpus()
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
            pooled.close()  # Another thread called `close` before it could see the workers.
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
        """Use `count` workers from the next element on; None adapts their number again.

        The elements, their order and the states do not change.
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
        # Normalise the state: checkpoint libraries may have changed the types of its numbers.
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
        """Pass on the last reports of the workers."""
        if self._pool is not None:
            for pid, report in self._pool.reports().items():
                self._context.observed.hear(self._dataset, pid, report)

    def describe_workers(self) -> list[str]:
        """Return where the workers run, if that is not this machine."""
        workers = [] if self._pool is None else list(self._pool.workers)
        texts = [(worker.index, worker.connection.handle.describe()) for worker in workers]
        return [f"Worker {index}: {text}" for index, text in sorted(texts) if text]

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

    The elements, their order and the states do not change.

    Args:
        iterator: An iterator of a pipeline with `num_workers="auto"`, or of a DataLoader with
            `worker_count="auto"`.
        count: The number of workers from now on; None adapts the number again.

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


def _auto_iterators(iterator: Any) -> Iterator[Any]:
    if isinstance(iterator, AutoPrefetchIterator) or getattr(iterator, "is_adaptive", False):
        yield iterator
        return
    inner = getattr(iterator, "_iterator", None)  # A DataLoader's iterator has one.
    for parent in getattr(iterator, "_parents", () if inner is None else (inner,)):
        yield from _auto_iterators(parent)


def _without_workers(state: State) -> State:
    """Translate a state that was saved with workers to the pipeline without workers."""
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
    set_up_worker(number)
    # Each worker opens the whole pipeline, so that positions are the same everywhere.
    alone = context.but(worker_index=0, worker_count=1)

    def open_it(context: run.RunContext) -> DatasetIterator[T]:
        with run.entered(context):
            return dataset.__iter__()

    iterator: DatasetIterator[T] = carrying(dataset, alone, open_it)
    reader: Any = iterator
    while not isinstance(reader, SpanReadIterator):
        (reader,) = reader._parents
    output = worker_output(iterator, context.observed, dataset)
    kind = FillingSpanIterator if hasattr(output, "next_into") else SpanIterator
    # A tracked run has to see each element pass.
    takes_chunks = context.observed.aims is None and output.takes_back
    return kind(output, reader, CountedStates(dataset), takes_chunks)


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
        buffer_size=1 << 40,  # The spans limit how far a worker runs ahead.
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
    """Run a pipeline in an adaptive number of processes; see `IterDataset.mp_prefetch`.

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
            'num_workers="auto" needs to locate an element without reading the ones before it, so'
            f" that the number of workers can change. This pipeline does not allow that: {error}."
            " Call `mp_prefetch` before that stage, do the same on the MapDataset before"
            " `to_iter_dataset()`, or give the number of workers, on which the order of the"
            " elements then depends."
        ) from None
    return AutoPrefetchIterDataset(ds, caps, worker_init_fn, backend)
