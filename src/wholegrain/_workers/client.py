"""Our side of one worker, whatever backend has started it."""

import atexit
import os
import pickle
import time
import weakref
from typing import Any

from wholegrain._core.log import logger
from wholegrain._read import forks, shutdown
from wholegrain._workers import messages
from wholegrain._workers.backend import Backend, Message, WorkerExit, WorkerSpec
from wholegrain._workers.transport import Decoder

# How long to wait before the worker is asked for what it has; longer where it had nothing.
_NUDGE_AFTER_S = 1e-3
_NUDGE_AFTER_MOST_S = 16e-3

QUIET_S = 5.0
"""If a worker sends nothing for so long, somebody should look at it."""


class WorkerClient:
    """Starts a worker and talks to it.

    Args:
        backend: What starts it.
        spec: What it runs, and where it begins.
    """

    def __init__(self, backend: Backend, spec: WorkerSpec) -> None:
        self._owner = os.getpid()
        self._is_open = False
        self.handle = backend.start(spec)
        self._is_open = True
        self._decoder = self.handle.decoder or Decoder(None, 0)
        self._released: tuple[list[int], list[int]] = ([], [])
        self._told = self._untold_bytes = 0  # What the worker knows was taken, and does not know.
        self._patience = _NUDGE_AFTER_S
        self._quiet_since: float | None = None
        self._has_warned = False
        self.worker_pid: int | None = None
        """The number of the process, once it has said hello."""
        self.begun: int | None = None
        """The generation of which the worker has begun a suspect element."""
        self.report: Any = None
        """What the iterator in the worker last reported."""
        self.decode = self._decoder.decode
        self.discard = self._decoder.discard
        _open_clients.add(self)
        forks.call_in_child(self, WorkerClient.close)

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""
        return self._is_open

    # Messages.

    def receive(self) -> Message:
        """Wait for elements, for their end, or for an error.

        Raises:
            EOFError: If the worker died.
        """
        receive = self.handle.receive
        while True:
            message = receive(self._patience)
            if message is None:
                message = self._wait_nudging()
            self._quiet_since = None
            if self._is_content(message):
                return message

    def _wait_nudging(self) -> Message:
        """Ask the worker for what is finished, and wait."""
        self.nudge()
        message = self.handle.receive(_NUDGE_AFTER_S)
        if message is not None:
            self._patience = _NUDGE_AFTER_S
            return message
        self._patience = min(2 * self._patience, _NUDGE_AFTER_MOST_S)
        while message is None:
            self.note_quiet()
            message = self.handle.receive(QUIET_S)
        return message

    def receive_arrived(self) -> Message | None:
        """Return the next elements, their end, or an error, if it is there; None if not yet.

        Raises:
            EOFError: If the worker died.
        """
        while (message := self.handle.receive(0)) is not None:
            self._quiet_since = None
            if self._is_content(message):
                return message
        return None

    def _is_content(self, message: Message) -> bool:
        """Take in what a message says beside elements; say whether it is about those."""
        kind = message[0]
        if kind == messages.HELLO:
            self.worker_pid = message[1]
        elif kind == messages.REPORT:
            self.report = pickle.loads(message[1]) or self.report
        elif kind == messages.BEGUN:
            self.begun = message[1]
        else:
            if kind == messages.RECORDS:
                message[3][:] = self._decoder.receive(message[2], message[3])
            return True
        return False

    def note_quiet(self) -> None:
        """Note that the consumer waits for the worker; warn if the worker does not run."""
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        quiet_s = now - self._quiet_since
        if not self._has_warned and quiet_s >= QUIET_S:
            warning = self.handle.stuck_because(quiet_s)
            if warning is not None:
                self._has_warned = True
                logger().warning("%s", warning)

    def nudge(self) -> None:
        """Ask for what is finished: the consumer waits."""
        self.handle.send((messages.NUDGE,))

    def assign(self, number: int, state: bytes, singly: int) -> None:
        """Have the worker go to a state, once it has done what it was given before.

        Freed slots are returned one call late: a worker that got all of them back at once would
        return memory to the system that it needs for the next element.

        Args:
            number: The generation that what it sends is of.
            state: Where to go.
            singly: How many elements it sends one by one.
        """
        released, self._released = self._released, self._decoder.take_released()
        if any(released):
            self.handle.send((messages.TAKEN, -1, 0, *released))
        self.handle.send((messages.SPAN, number, state, singly))

    def nbytes_of(self, item: Any, kind: int) -> int:
        """Return about how much memory an element of a message takes."""
        if kind == messages.PLAIN:
            return 64 + (len(item) if isinstance(item, (str, bytes)) else 0)
        return self._decoder.nbytes_of(item)

    def cancel(self, number: int = 0) -> None:
        """Have the worker forget what it was given, or one thing that it has not begun."""
        self.handle.send((messages.CANCEL, number))

    def acknowledge(self, generation: int, taken: int, nbytes: int) -> None:
        """Tell the worker how many elements were taken, and which slots came free.

        Not always at once: it can go on for a while before it has to know.

        Args:
            generation: The generation of the elements.
            taken: How many, in all.
            nbytes: How large the elements are that were not taken at the last call.
        """
        self._untold_bytes += nbytes
        if (
            taken - self._told >= messages.TAKEN_TOGETHER
            or self._untold_bytes >= messages.TAKEN_TOGETHER_BYTES
        ):
            self._told, self._untold_bytes = taken, 0
            released = self._decoder.take_released()
            self.handle.send((messages.TAKEN, generation, taken, *released))

    def reposition(self, generation: int, state: bytes) -> None:
        """Have the worker go on from a state. What it sends is of that generation then."""
        self._told = self._untold_bytes = 0
        self.handle.send((messages.REPOSITION, generation, state, 0))

    # The end.

    def exit(self) -> WorkerExit:
        """Say how the worker ended; end it first if it has not."""
        return self.handle.exit()

    def __del__(self) -> None:
        # Of one that nobody has got hold of, because its start was interrupted.
        if getattr(self, "_is_open", False):
            self.close()

    def close(self) -> None:
        """End the worker; do not wait for it. Arrays that came from it stay valid."""
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
