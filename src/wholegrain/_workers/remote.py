"""An iterator that runs in a worker process."""

import contextlib
import logging
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, TypeVar

from wholegrain._core import events
from wholegrain._core.errors import take_no_place
from wholegrain._read import machine
from wholegrain._read.shutdown import wait_if_exiting
from wholegrain._workers import messages
from wholegrain._workers.backend import Backend, WorkerExit, WorkerSpec, resolve
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.deaths import SINGLY_AFTER_DEATH, Suspect, death_text, deaths_text
from wholegrain._workers.inbox import Delivery, Inbox, discard
from wholegrain._workers.pickling import dumps, dumps_by_value
from wholegrain._workers.program import Program

T = TypeVar("T")

_log = logging.getLogger("wholegrain")

_MAX_HOLD_BUDGET = 1 << 30


class _Passed(NamedTuple):
    """What came before the current message.

    Attributes:
        wire_state: The state after its last element; None at the beginning.
        elements: How many elements there were, since the beginning or the last `set_state`.
    """

    wire_state: int | bytes | None = None
    elements: int = 0


class Reports:
    """The reports of a worker about its run."""

    def __init__(self) -> None:
        self.last: Any = None
        self.keep: Callable[[Any], None] | None = None
        """Called with the last report of a process that has ended."""

    def end(self) -> None:
        """Pass on the last report: the process ends."""
        if self.keep is not None:
            self.keep(self.last)


class RemoteIterator(Inbox[T]):
    """Iterates over the elements of an iterator in a worker process.

    No process is started before the first `next` or `start_prefetch`. If the process dies, another
    one continues after the last element that arrived. It is an error only if workers die twice in
    a row at the same element.

    The worker runs ahead of the consumer: at most `2 * buffer_size + 1` finished elements wait
    while it makes one more. If elements are small, up to 1024 elements and 2 MiB may wait.

    Arrays in the elements belong to the caller, and stay valid after `close`.

    Args:
        program: The program of the worker.
        worker_index: Passed to the program's factory, and named in errors.
        worker_count: Passed to the program's factory, and named in errors.
        buffer_size: How many finished elements should be ready.
        initial_state: The state before the first element, or a function that returns it. It
            lets `get_state` answer before a process runs.
        min_shm_size: Elements with fewer bytes of arrays are sent in messages, not in slots.
        worker_init_fn: Called with index and count in the process, before the program is loaded.
        hold_budget: If the consumer holds on to elements with more than this many bytes of shared
            memory, later elements are copied out of it.
        backend: Starts the worker; None for the default.
    """

    def __init__(
        self,
        program: Program,
        worker_index: int,
        worker_count: int,
        *,
        buffer_size: int,
        initial_state: Callable[[], Any] | Any,
        min_shm_size: int = 0,
        worker_init_fn: Callable[[int, int], None] | None = None,
        hold_budget: int | None = None,
        backend: Backend | None = None,
    ) -> None:
        super().__init__()
        self._name = f"Worker {worker_index} of {worker_count}"
        # Released by `close`, because the program may hold much memory.
        self._spec: WorkerSpec | None = WorkerSpec(
            program=program,
            index=worker_index,
            count=worker_count,
            buffer_size=buffer_size,
            min_shm_size=min_shm_size,
            init_fn=None if worker_init_fn is None else dumps_by_value(worker_init_fn),
            hold_budget=default_hold_budget(worker_count) if hold_budget is None else hold_budget,
        )
        self._backend = resolve(backend)
        self._initial_state = initial_state
        self._connection: WorkerClient | None = None
        # Counts calls of `set_state`, so that messages sent before the last one are recognised.
        self._generation = 0
        self._passed = _Passed()
        self._suspect = Suspect()
        self._ended = False
        self.reports = Reports()
        self.waiting: Callable[[], contextlib.AbstractContextManager[None]] | None = None
        """Entered while the consumer waits for the worker, for measurements."""

    @property
    def _made_by(self) -> str:
        return self._name

    @property
    def _has_workers(self) -> bool:
        return self._connection is not None

    def get_state(self) -> Any:
        """Return the state after the last element that was handed out."""
        wire_state = self._last_wire_state()
        if type(wire_state) is int:
            return {messages.COUNTER: wire_state}
        if wire_state is None:
            return self._initial_state() if callable(self._initial_state) else self._initial_state
        return pickle.loads(_pickled_state(wire_state))

    def _last_wire_state(self) -> int | bytes | None:
        """Return the state after the last element that was handed out."""
        wire_state = self._current.last_wire_state(self._cursor)
        return self._passed.wire_state if wire_state is None else wire_state

    def _last_arrived(self) -> int | bytes | None:
        """Return the state after the last element that arrived."""
        wire_state = self._current.last_wire_state()
        return self._passed.wire_state if wire_state is None else wire_state

    def _arrived(self) -> int:
        """Return how many elements have arrived."""
        return self._passed.elements + self._current.size

    def set_state(self, state: Any) -> None:
        """Continue from `state`. A running worker moves there and keeps running."""
        pickled = dumps(state)
        self._drop()
        self._generation += 1
        self._passed = _Passed(pickled)
        self._suspect = Suspect()
        self._ended = False
        if self._connection is not None:
            try:
                self._connection.reposition(self._generation, pickled)
            except BaseException:
                self._abandon()
                raise

    def start_prefetch(self) -> None:
        """Start the process, so that elements are ready for the first `next`."""
        self._life.check()
        if self._connection is None and not self._ended:
            self._connect()

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, known after its first element."""
        return None if self._connection is None else self._connection.worker_pid

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes whenever an element is taken."""
        return self._passed.elements, self._cursor

    @property
    def report(self) -> Any:
        """The last result of `get_report` of the iterator in the worker, or None."""
        connection = self._connection
        if connection is not None and connection.report is not None:
            self.reports.last = connection.report
        return self.reports.last

    def describe(self) -> str:
        """Return where the worker runs, if that is not this machine."""
        connection = self._connection
        return "" if connection is None else connection.handle.describe()

    def close(self) -> None:
        """End the process without waiting for it. Can be called more than once."""
        self._life.is_closed = True
        self._abandon()
        self._passed = self._passed._replace(wire_state=self._last_wire_state())
        self._forget()
        self._spec = None

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At finalization everything has been closed already, and modules are partly torn down.
        if not _finalizing() and getattr(self, "_connection", None) is not None:
            self.close()

    def _connect(self) -> WorkerClient:
        """Start a process that continues after the last element that arrived."""
        state = self._state_to_resume()
        singly = SINGLY_AFTER_DEATH if self._suspect.is_watched else 0
        spec = self._spec
        self._life.check()
        assert spec is not None
        spec = replace(spec, generation=self._generation, state=state, singly=singly)
        connection = self._connection = WorkerClient(self._backend, spec)
        if self._life.is_closed:  # Another thread called `close` before it saw this connection.
            self._abandon()
            self._life.check()
        return connection

    def _state_to_resume(self) -> bytes | None:
        """Return the state after the last element that arrived; None for the beginning."""
        wire_state = self._last_arrived()
        return None if wire_state is None else _pickled_state(wire_state)

    def _acknowledge(self) -> None:
        """Acknowledge a message to the worker: its last element is being handed out."""
        connection, current = self._connection, self._current
        if connection is not None and connection is current.source:
            try:
                connection.acknowledge(self._generation, current.size, current.nbytes)
            except BaseException as error:
                self._abandon()
                take_no_place(error)
                raise
        if current.wire_states:
            # Not needed any more. If it is a method of the object that holds this iterator, it
            # would form a reference cycle, and the worker would live until the next collection.
            self._initial_state = None

    def _next_message(self) -> Delivery:
        if self.waiting is None:
            return self._receive()
        with self.waiting():
            return self._receive()

    def _receive(self) -> Delivery:
        """Wait for the next message with elements; return the new value of `_current`."""
        try:
            connection, message = self._wait_for_message()
        except Exception as error:
            take_no_place(error)
            raise
        kind = message[0]
        if kind == messages.END:
            self._ended = True
            raise StopIteration
        if kind == messages.ERROR:
            self._raise(connection, *message[2:])
        current = self._take_over(connection, kind, *message[3:])
        if self._life.is_closed:  # Another thread called `close` before this message was current.
            self._forget()
            self._life.check()
        return current

    def _wait_for_message(self) -> tuple[WorkerClient, Any]:
        """Wait for the next message of the current generation."""
        self._life.check()
        if self._ended:
            raise StopIteration
        while True:
            connection = self._connection
            if connection is None:
                connection = self._connect()
            event = events.begin_wait("ProcessPrefetchDatasetIterator._receive", self._name)
            try:
                message = connection.receive()
            except EOFError:
                self._replace(connection)
                continue
            except BaseException as error:
                # Interrupted, perhaps in the middle of a message, or closed by another thread.
                self._abandon()
                if isinstance(error, Exception):
                    self._life.check()
                raise
            finally:
                events.end(event)
            if message[1] == self._generation:
                return connection, message
            if message[0] == messages.RECORDS:
                discard(connection, messages.RECORDS, message[3])
            elif message[0] == messages.ERROR and message[4]:
                # The worker could not go to a state that is outdated by now. It cannot continue.
                self._abandon()

    def _take_over(
        self,
        connection: WorkerClient,
        kind: int,
        elements: list[Any],
        wire_states: Sequence[int | bytes],
        nbytes: int = messages.TAKEN_TOGETHER_BYTES,
    ) -> Delivery:
        self._passed = _Passed(self._last_arrived(), self._arrived())
        return self._hold(connection, kind, elements, wire_states, nbytes)

    def _raise(
        self,
        connection: WorkerClient,
        packed: bytes,
        wire_state: int | bytes | None,
        is_fatal: bool,
    ) -> NoReturn:
        """Raise an exception that came from the worker."""
        pid = connection.worker_pid
        where = ""
        if is_fatal:
            self._abandon()
            where = " while it was being set up"
        else:
            if wire_state is None:
                wire_state = self._last_arrived()
            self._take_over(
                connection, messages.PLAIN, [None], [] if wire_state is None else [wire_state]
            )
            self._cursor = 1  # First, because the placeholder must never be handed out.
            self._acknowledge()
        from wholegrain._workers.failures import unpack_error  # Rarely needed.

        error = unpack_error(packed)
        error.add_note(f"{self._name} (process {pid}) raised this{where}.")
        if is_fatal:
            take_no_place(error)
        raise error

    def _abandon(self) -> None:
        """End the process. The next one continues after the last element that arrived."""
        self.reports.last = self.report
        self.reports.end()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _replace(self, connection: WorkerClient) -> None:
        """Prepare to replace a dead process; raise if workers have died at this element before."""
        wait_if_exiting()
        if not connection.is_open:
            self._life.is_closed = True
        self._life.check()
        ended = connection.exit()
        pid, has_begun = connection.worker_pid, connection.has_begun(self._generation)
        self._abandon()
        self._life.check()
        position = self._arrived()
        if self._suspect.note_death(position, ended, has_begun):
            raise RuntimeError(self._describe_death(ended, position, has_begun)) from None
        _log.warning(
            "%s (process %s) ended unexpectedly with %s. Another process continues with its"
            " element %d.%s",
            self._name,
            pid,
            ended.reason,
            position,
            f"\n{ended.report}" if ended.report else "",
        )

    def _describe_death(self, ended: WorkerExit, position: int, has_begun: bool | None) -> str:
        wire_state = self._last_arrived()
        state = (
            "its initial state"
            if wire_state is None
            else repr(pickle.loads(_pickled_state(wire_state)))
        )
        happened = (
            f"{self._name} ended{deaths_text(has_begun)}"
            f" element {position} (counted from 0 at the start, or at the last restored state),"
            f" after the state {state}."
        )
        return death_text(ended, happened)


def _pickled_state(wire_state: int | bytes) -> bytes:
    return (
        pickle.dumps({messages.COUNTER: wire_state}) if isinstance(wire_state, int) else wire_state
    )


def default_hold_budget(worker_count: int) -> int:
    """Divide 1 GiB, or a quarter of the memory if that is less, among the workers."""
    return min(_MAX_HOLD_BUDGET, machine.total_memory() // 4) // max(1, worker_count)
