"""The protocol between workers and what starts them: fork, spawn, or a backend of your own.

    our side, the same for all backends          |  the backend            |  the worker
    ---------------------------------------------+-------------------------+----------------------
    order, states, exactly once, errors,         |  Backend.start(spec)    |  run_worker(packed,
    how many workers ("auto")                    |  WorkerHandle: messages |      send, receive)

A backend starts a worker somewhere, moves messages in order in both directions, and reports when
and why a worker has died. It never inspects a message. A message is a tuple of plain Python values,
so any transport that can pickle can carry it. Nothing here assumes a single machine.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wholegrain._workers import startup
from wholegrain._workers.messages import Job
from wholegrain._workers.program import Program
from wholegrain._workers.transport import Decoder

Message = tuple[Any, ...]
"""A message between a worker and its consumer: plain values that can be pickled."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WorkerSpec:
    """The worker that a backend has to start.

    A backend needs only `index` and `count`, which identify the worker, and `packed()`.
    """

    program: Program
    index: int
    count: int
    buffer_size: int
    hold_budget: int = 0
    min_shm_size: int = 0
    init_fn: bytes | None = None
    generation: int = 0
    state: bytes | None = None
    singly: int = 0

    @property
    def name(self) -> str:
        """The worker's name in log lines and errors."""
        return f"worker {self.index} of {self.count}"

    def job(self) -> Job:
        """Return the settings that the worker needs besides its program."""
        return Job(
            index=self.index,
            count=self.count,
            buffer_size=self.buffer_size,
            init_fn=self.init_fn,
            generation=self.generation,
            state=self.state,
            singly=self.singly,
            startup=startup.calls(),
        )

    def packed(self) -> bytes:
        """Return everything that `run_worker` needs, including the pipeline and its arrays."""
        return pickle.dumps((self.job(), self.program.copy_inline()), 5)


@dataclass(frozen=True)
class WorkerExit:
    """How a worker ended.

    Args:
        reason: A description for people, for example "exit code -9 (SIGKILL)".
        report: The last output of the worker, for example the stack of a crash in native code.
        is_blameless: Whether the cause lies outside the worker, for example a machine that was
            shut down. Such a death does not count against the element that was being made.
        hint: A sentence about the likely cause.
    """

    reason: str
    report: str = ""
    is_blameless: bool = False
    hint: str = ""


class WorkerHandle(ABC):
    """A started worker. Only one thread at a time uses it, except that any may call `close`."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message. If the worker has died, do nothing: `receive` raises EOFError."""

    @abstractmethod
    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message, or None if none arrives within `timeout_s`.

        Raises:
            EOFError: If the worker has died and everything that it sent has been received.
        """

    @abstractmethod
    def exit(self) -> WorkerExit:
        """Return how the worker ended. Kill it first if it is still running."""

    @abstractmethod
    def close(self) -> None:
        """End the worker without waiting for it. May be called more than once."""

    def disown(self) -> None:  # noqa: B027  (most have nothing to do)
        """Release the worker in a forked child of this process; it belongs to the parent."""

    @property
    def decoder(self) -> Decoder | None:
        """Turns records into elements; None if messages carry whole elements."""
        return None

    def memory_bytes(self) -> int | None:
        """Return how much memory of this machine the worker uses, or None if unknown."""
        return None

    def stuck_because(self, quiet_s: float) -> str | None:
        """Return a warning if something seems to keep the worker from running.

        Args:
            quiet_s: For how many seconds the worker has sent nothing while the consumer waited.
        """
        return None

    def describe(self) -> str:
        """Return where the worker runs and what it costs to reach it, for reports; "" if here."""
        return ""


class Backend(ABC):
    """Starts workers. Pass one as `MultiprocessingOptions(backend=...)`."""

    @abstractmethod
    def start(self, spec: WorkerSpec) -> WorkerHandle:
        """Start a worker that runs `run_worker(spec.packed(), send, receive)`.

        The worker may still be starting when this returns.
        """

    @abstractmethod
    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        """Wait until at least one of the workers has sent something or died.

        Return the handles of all workers that have; none if `timeout_s` passes first.
        """

    def prepare(self, modules: Iterable[str]) -> None:  # noqa: B027  (most have nothing to do)
        """Start whatever the backend needs before its first worker, without waiting for it.

        Args:
            modules: The modules that the workers will import.
        """

    def max_workers(self) -> int | None:
        """Return how many workers "auto" may start; None for the number of CPUs of this machine."""
        return None


def resolve(backend: Any) -> Backend:
    """Return the backend that an option asks for.

    Args:
        backend: "fork", "spawn" or a backend. None selects the one that WHOLEGRAIN_WORKER_START
            names; without that variable, "fork" on Linux and "spawn" elsewhere.
    """
    from wholegrain._workers.local import backend as local

    if isinstance(backend, Backend):
        return backend
    if backend is None:
        return local.default()
    if backend not in ("fork", "spawn"):
        raise ValueError(
            '`backend` has to be "fork", "spawn", "threads", or a'
            f" `wholegrain.multiprocessing.Backend`, but got {backend!r}."
        )
    return local.LocalBackend(backend)
