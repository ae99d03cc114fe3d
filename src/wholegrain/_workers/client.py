"""The consumer's side of one worker, for any backend."""

import atexit
import os
import pickle
import time
import weakref
from collections.abc import Callable
from typing import Any

from wholegrain._core.log import logger
from wholegrain._read import forks, shutdown
from wholegrain._workers import messages
from wholegrain._workers.backend import Backend, Message, WorkerExit, WorkerSpec
from wholegrain._workers.transport import Decoder

# How long to wait before the worker is nudged to send what is finished. The wait doubles up to the
# maximum while nudges bring nothing.
_NUDGE_AFTER_S = 1e-3
_NUDGE_AFTER_MOST_S = 16e-3

QUIET_S = 5.0
"""A worker that sends nothing for this long is checked for being stuck."""


class _Patience:
    """How long the consumer waits for a worker before it nudges it, and before it warns."""

    def __init__(self) -> None:
        self.seconds = _NUDGE_AFTER_S
        self._quiet_since: float | None = None
        self._has_warned = False

    def note_nudge(self, *, helped: bool) -> None:
        """Wait longer before the next nudge if this one did not help."""
        self.seconds = _NUDGE_AFTER_S if helped else min(2 * self.seconds, _NUDGE_AFTER_MOST_S)

    def note_message(self) -> None:
        """Record that the worker has sent something."""
        self._quiet_since = None

    def note_quiet(self, why: Callable[[float], str | None]) -> None:
        """Record that the consumer waits. Log what `why` returns after a while, but only once."""
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        quiet_s = now - self._quiet_since
        if not self._has_warned and quiet_s >= QUIET_S:
            warning = why(quiet_s)
            if warning is not None:
                self._has_warned = True
                logger().warning("%s", warning)


class _Taken:
    """Elements that were taken, and that the worker may not know of yet."""

    def __init__(self) -> None:
        self.count = 0
        self._told = 0
        self._untold_bytes = 0

    def add(self, count: int, nbytes: int) -> bool:
        """Count elements; return whether it is time to tell the worker, which the caller does."""
        self.count += count
        self._untold_bytes += nbytes
        if (
            self.count - self._told < messages.TAKEN_TOGETHER
            and self._untold_bytes < messages.TAKEN_TOGETHER_BYTES
        ):
            return False
        self._told, self._untold_bytes = self.count, 0
        return True


class WorkerClient:
    """Starts a worker and exchanges messages with it.

    Args:
        backend: Starts the worker.
        spec: The program that it runs, and the state to start from.
    """

    def __init__(self, backend: Backend, spec: WorkerSpec) -> None:
        self._owner = os.getpid()
        self._is_open = False
        self.handle = backend.start(spec)
        self._is_open = True
        self._decoder = self.handle.decoder or Decoder(None, 0)
        self._released: tuple[list[int], list[int]] = ([], [])
        self._taken = _Taken()
        self._patience = _Patience()
        # How many of the next elements the worker announces with BEGUN, and the generation of the
        # one that it announced last and has not sent yet.
        self._announced = spec.singly
        self._begun: int | None = None
        self.worker_pid: int | None = None
        """The process id, known once HELLO has arrived."""
        self.report: Any = None
        """The last report of the iterator in the worker."""
        self.decode = self._decoder.decode
        self.discard = self._decoder.discard
        _open_clients.add(self)
        forks.call_in_child(self, WorkerClient.close)

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called."""
        return self._is_open

    # Messages.

    def receive(self) -> Message:
        """Wait for a message with elements, with their end, or with an error.

        Raises:
            EOFError: If the worker died.
        """
        receive = self.handle.receive
        while True:
            message = receive(self._patience.seconds)
            if message is None:
                message = self._wait_nudging()
            self._patience.note_message()
            if self._is_content(message):
                return message

    def _wait_nudging(self) -> Message:
        """Ask the worker for its finished elements, and wait."""
        self.nudge()
        message = self.handle.receive(_NUDGE_AFTER_S)
        self._patience.note_nudge(helped=message is not None)
        while message is None:
            self.note_quiet()
            message = self.handle.receive(QUIET_S)
        return message

    def receive_arrived(self) -> Message | None:
        """Return the next message with elements, their end or an error; None if none is here yet.

        Raises:
            EOFError: If the worker died.
        """
        while (message := self.handle.receive(0)) is not None:
            self._patience.note_message()
            if self._is_content(message):
                return message
        return None

    def _is_content(self, message: Message) -> bool:
        """Process a control message; return whether the message is about elements instead."""
        kind = message[0]
        if kind == messages.HELLO:
            self.worker_pid = message[1]
        elif kind == messages.REPORT:
            self.report = pickle.loads(message[1]) or self.report
        elif kind == messages.BEGUN:
            self._begun = message[1]
        else:
            if self._begun is not None:
                self._begun = None
                self._announced -= 1
            if kind == messages.RECORDS:
                message[3][:] = self._decoder.receive(message[2], message[3])
            return True
        return False

    def has_begun(self, generation: int) -> bool | None:
        """Return whether the worker has begun an element of `generation` that has not arrived.

        None if the worker does not announce elements, so that this is not known.
        """
        return self._begun == generation if self._announced > 0 else None

    def note_quiet(self) -> None:
        """Record that the consumer waits for the worker; warn if the worker seems stuck."""
        self._patience.note_quiet(self.handle.stuck_because)

    def nudge(self) -> None:
        """Ask the worker to send its finished elements now, because the consumer waits."""
        self.handle.send((messages.NUDGE,))

    def assign(self, number: int, state: bytes, singly: int) -> None:
        """Queue a span: the worker goes to `state` once the spans assigned before are finished.

        Freed slots are returned one call late, so that the worker's arena does not shrink and grow
        again.

        Args:
            number: The generation of the elements that it sends for this span.
            state: The state in which the span starts.
            singly: How many elements it sends one by one.
        """
        released, self._released = self._released, self._decoder.take_released()
        if any(released):
            self.handle.send((messages.TAKEN, -1, 0, *released))
        self._announced += singly
        self.handle.send((messages.SPAN, number, state, singly))

    def nbytes_of(self, item: Any, kind: int) -> int:
        """Return approximately how many bytes an element of a message occupies."""
        if kind == messages.PLAIN:
            return 64 + (len(item) if isinstance(item, (str, bytes)) else 0)
        return self._decoder.nbytes_of(item)

    def cancel(self, number: int = 0) -> None:
        """Cancel all spans assigned to the worker, or the one span `number` if not begun."""
        self.handle.send((messages.CANCEL, number))

    def acknowledge(self, generation: int, count: int, nbytes: int) -> None:
        """Report to the worker that elements were taken, and which slots are free again.

        Reports are batched, because the worker can run ahead for a while without one.

        Args:
            generation: The generation of the elements.
            count: How many elements were taken since the last call.
            nbytes: Their size.
        """
        if self._taken.add(count, nbytes):
            released = self._decoder.take_released()
            self.handle.send((messages.TAKEN, generation, self._taken.count, *released))

    def reposition(self, generation: int, state: bytes) -> None:
        """Move the worker to a state. Everything that it sends afterwards has that generation."""
        self._taken = _Taken()
        self._announced, self._begun = 0, None
        self.handle.send((messages.REPOSITION, generation, state, 0))

    # The end.

    def exit(self) -> WorkerExit:
        """Return how the worker ended. Kill it first if it is still running."""
        return self.handle.exit()

    def __del__(self) -> None:
        # Reached if the start was interrupted before the caller got a reference.
        if getattr(self, "_is_open", False):
            self.close()

    def close(self) -> None:
        """End the worker without waiting for it. Arrays received from it stay valid."""
        if not self._is_open:
            return
        self._is_open = False
        _open_clients.discard(self)
        if self._owner != os.getpid():
            self.handle.disown()
        else:
            self.handle.close()


_open_clients: "weakref.WeakSet[WorkerClient]" = weakref.WeakSet()


def _close_all() -> None:
    shutdown.exiting.set()
    for client in list(_open_clients):
        client.close()


atexit.register(_close_all)
