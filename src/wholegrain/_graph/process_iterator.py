"""An iterator whose pipeline runs in a worker process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from wholegrain._core.errors import taking_no_place
from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import State, T
from wholegrain._graph.dataset import upstream
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._state.validate import copy_state

if TYPE_CHECKING:
    from wholegrain._workers.backend import Backend
    from wholegrain._workers.program import Program
    from wholegrain._workers.remote import RemoteIterator


class ProcessIterator(DatasetIterator[T]):
    """An iterator over the elements of a worker process.

    Its state is the one after the last element that was handed out.

    Args:
        program: Returns the packed program of the worker.
        modules: The modules that the program needs.
        open_here: Opens the same pipeline in this process, to compute positions.
        worker_index: Which worker this is.
        worker_count: How many workers there are.
        buffer_size: How many finished elements the worker may buffer.
        min_shm_size: Elements with fewer bytes of arrays are not sent in shared memory.
        worker_init_fn: Called once in the worker.
        backend: Starts the worker.
    """

    def __init__(
        self,
        program: Callable[[], Program],
        modules: Iterable[str],
        open_here: Callable[[], DatasetIterator[T]],
        *,
        worker_index: int,
        worker_count: int,
        buffer_size: int,
        min_shm_size: int,
        worker_init_fn: Callable[[int, int], None] | None,
        backend: Backend,
    ) -> None:
        super().__init__()
        self._program = program
        self._modules = modules
        self._open_here = open_here
        # Not a bound method, because the RemoteIterator must not keep this iterator alive.
        self._start_state = functools.partial(_start_state, functools.cache(open_here))
        self._settings: dict[str, Any] = {
            "worker_index": worker_index,
            "worker_count": worker_count,
            "buffer_size": buffer_size,
            "min_shm_size": min_shm_size,
            "worker_init_fn": worker_init_fn,
            "backend": backend,
        }
        self._remote: RemoteIterator[T] | None = None
        self._state: State | None = None  # The state to start from, if one was set.
        self._closed = False
        self.keep_report: Callable[[int, Any], None] | None = None
        """Called with the worker's index and its last report."""
        self.waiting: Callable[[], AbstractContextManager[None]] | None = None
        """Entered while the consumer waits for the worker, for measurements."""

    def __next__(self) -> T:
        try:
            remote = self._remote
            if remote is None:
                with taking_no_place():
                    remote = self._connect()
            return next(remote)
        except Exception:
            wait_if_exiting()  # Sockets may be closed at any point during shutdown.
            raise

    def _connect(self) -> RemoteIterator[T]:
        self._check_open()
        self._settings["backend"].prepare(self._modules)
        # The rest is imported, and the pipeline packed, while the fork server starts.
        from wholegrain._workers.remote import RemoteIterator

        remote: RemoteIterator[T] = RemoteIterator(
            self._program(), initial_state=self._start_state, **self._settings
        )
        remote.waiting = self.waiting
        if self.keep_report is not None:
            index = self._settings["worker_index"]
            remote.reports.keep = functools.partial(self.keep_report, index)
        if self._state is not None:
            remote.set_state(self._state)
        self._remote = remote
        try:
            self._check_open()
        except ValueError:
            remote.close()  # Another thread called `close` before it could see the worker.
            raise
        return remote

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def start_prefetch(self) -> None:
        self._check_open()
        (self._remote or self._connect()).start_prefetch()

    @property
    def reads_ahead(self) -> bool:
        return True

    def get_state(self) -> State:
        if self._remote is not None:
            return self._remote.get_state()  # type: ignore[no-any-return]
        return self._start_state() if self._state is None else copy_state(self._state)

    def set_state(self, state: State) -> None:
        self._check_open()
        if self._remote is not None:
            self._remote.set_state(state)
        else:
            self._state = copy_state(state)

    def progress(self) -> Any:
        return None if self._remote is None else self._remote.progress

    def tell_report(self) -> None:
        """Pass on the last report of the worker."""
        if self._remote is not None and self.keep_report is not None:
            self.keep_report(self._settings["worker_index"], self._remote.report)

    def describe_workers(self) -> list[str]:
        """Return where the worker runs, if that is not this machine."""
        text = "" if self._remote is None else self._remote.describe()
        return [f"Worker {self._settings['worker_index']}: {text}"] if text else []

    def close(self) -> None:
        self._closed = True
        if self._remote is not None:
            self._remote.close()
            self.tell_report()

    def _get_next_index(self) -> int:
        here = self._open_here()
        here.set_state(self.get_state())
        index = here._get_next_index()
        here.close()
        return index

    def _set_next_index(self, index: int) -> None:
        here = self._open_here()
        here._set_next_index(index)
        self.set_state(here.get_state())
        here.close()

    def __str__(self) -> str:
        return f"ProcessPrefetchDatasetIterator(buffer_size={self._settings['buffer_size']})"


def _start_state(opened: Callable[[], DatasetIterator[Any]]) -> State:
    """Return the state before the first element."""
    return opened().get_state()


def modules_of(dataset: Any) -> set[str]:
    """Return the modules of this package that a pipeline needs, without its sources.

    The fork server must not import sources: the libraries of some formats start threads.
    """
    kinds = {kind for stage in upstream(dataset) for kind in type(stage).__mro__}
    ours = {kind.__module__ for kind in kinds if kind.__module__.startswith("wholegrain.")}
    return {name for name in ours if not name.startswith("wholegrain.sources.")}


def pack_pipeline(factory: Callable[[int, int], Any], dataset: Any) -> Program:
    """Pack a pipeline for workers. If that fails, name the stage that cannot be pickled."""
    from wholegrain._workers.program import Program

    try:
        return Program.pack(factory)
    except Exception as error:
        culprit = _first_unpicklable(dataset)
        if culprit is not None:
            error.add_note(
                f"Dataset: {culprit} cannot be pickled! Worker processes get a copy of the whole"
                " pipeline: open files, locks and connections have to be left out of it, and made"
                " when they are first used."
            )
        raise


def _first_unpicklable(dataset: Any) -> Any:
    """Return the first stage that cannot be pickled, parents first."""
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    for stage in reversed(upstream(dataset)):
        try:
            cloudpickle.dumps(stage)
        except Exception as error:
            if is_interruption(error):
                raise
            return stage
    return None
