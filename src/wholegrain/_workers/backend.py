"""The seam between workers and whatever starts them: fork, spawn, or a backend of your own.

    our side, the same for all backends          |  the backend            |  the worker
    ---------------------------------------------+-------------------------+----------------------
    order, states, exactly once, errors,         |  Backend.start(spec)    |  run_worker(packed,
    how many workers ("auto")                    |  WorkerHandle: messages |      send, receive)

A backend starts a worker somewhere, moves messages in order in both directions, and says when and
why a worker has died. It never looks into a message. A message is a tuple of plain Python values,
so that anything that pickles can move it. Nothing here assumes one machine.
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
"""What a worker and its consumer say to each other: plain values that can be pickled."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WorkerSpec:
    """What a backend is asked to start.

    Backends need `index` and `count`, which say which worker this is, and `packed()`.
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
        """Which worker this is, for messages."""
        return f"worker {self.index} of {self.count}"

    def job(self) -> Job:
        """Return what the worker has to know besides its program."""
        return Job(
            index=self.index,
            count=self.count,
            buffer_size=self.buffer_size,
            init_fn=self.init_fn,
            generation=self.generation,
            state=self.state,
            singly=self.singly,
            startup=startup.names(),
        )

    def packed(self) -> bytes:
        """Return everything that `run_worker` needs, with the pipeline and its arrays."""
        return pickle.dumps((self.job(), self.program.copy_inline()), 5)


@dataclass(frozen=True)
class WorkerExit:
    """How a worker ended.

    Args:
        reason: For people, for example "exit code -9 (SIGKILL)".
        report: What the worker said last, for example the stack of a crash in native code.
        is_blameless: Whether something else ended it than what it was making, for example a
            machine that was shut down. Then nothing is held against the element.
        hint: A sentence about the likely cause.
    """

    reason: str
    report: str = ""
    is_blameless: bool = False
    hint: str = ""


class WorkerHandle(ABC):
    """One worker that was started. Only one thread at a time uses it, except for `close`."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message. If the worker is gone, do nothing: `receive` tells it."""

    @abstractmethod
    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message; None if there is none within the time.

        Raises:
            EOFError: If the worker has died, and everything that it sent was received.
        """

    @abstractmethod
    def exit(self) -> WorkerExit:
        """Say how the worker ended; end it first if it has not."""

    @abstractmethod
    def close(self) -> None:
        """End the worker, without waiting for it. May be called more than once."""

    def disown(self) -> None:  # noqa: B027  (most have nothing to do)
        """Let go of the worker in a forked child of this process: it is the parent's."""

    @property
    def decoder(self) -> Decoder | None:
        """What turns records into elements; None where all of an element is in the message."""
        return None

    def memory_bytes(self) -> int | None:
        """Return how much memory of this machine the worker takes; None if unknown."""
        return None

    def stuck_because(self, quiet_s: float) -> str | None:
        """Return a warning if something seems to keep the worker from running.

        Args:
            quiet_s: For how many seconds the worker has sent nothing, though one waits for it.
        """
        return None


class Backend(ABC):
    """Starts workers. Pass one as `MultiprocessingOptions(backend=...)`."""

    @abstractmethod
    def start(self, spec: WorkerSpec) -> WorkerHandle:
        """Start a worker that runs `run_worker(spec.packed(), send, receive)`.

        It need not have started when this returns.
        """

    @abstractmethod
    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        """Wait until one of the workers has sent something or died; return those that have.

        Return nothing if none has within the time.
        """

    def prepare(self, modules: Iterable[str]) -> None:  # noqa: B027  (most have nothing to do)
        """Start what workers are started from, without waiting for it.

        Args:
            modules: What the workers will import.
        """


def resolve(backend: Any) -> Backend:
    """Return the backend that an option asks for.

    Args:
        backend: "fork", "spawn", a backend, or None for the one in WHOLEGRAIN_WORKER_START, or else
            "fork" on Linux and "spawn" elsewhere.
    """
    from wholegrain._workers.local import backend as local

    if isinstance(backend, Backend):
        return backend
    if backend is None:
        return local.default()
    if backend not in ("fork", "spawn"):
        raise ValueError(
            '`backend` has to be "fork", "spawn", or a `wholegrain.multiprocessing.Backend`, but'
            f" got {backend!r}."
        )
    return local.LocalBackend(backend)
