"""The main process's side of one worker process, from its start to its end."""

import atexit
import contextlib
import errno
import os
import pickle
import socket
import sys
import time
import weakref
from dataclasses import dataclass
from io import FileIO
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._read import ending, forks
from wholegrain._workers import messages, set_up
from wholegrain._workers.local import memory
from wholegrain._workers.local.channel import Channel
from wholegrain._workers.local.interpreter import module_path, worker_environ
from wholegrain._workers.local.launcher import get_launcher
from wholegrain._workers.local.ring import SlotViews
from wholegrain._workers.local.transport import Decoder
from wholegrain._workers.pickling import dumps
from wholegrain._workers.program import Program

_NUDGE = pickle.dumps((messages.NUDGE,))
# How long to wait before the worker is asked for what it has; longer where it had nothing.
_NUDGE_AFTER_S = 1e-3
_NUDGE_AFTER_MOST_S = 16e-3

QUIET_S = 5.0
"""If a worker sends nothing for so long, somebody should look at it."""
_LONG_S = 60.0
_STOPPED = "Tt"
_STATES = {
    "R": "R (running)",
    "S": "S (sleeping)",
    "D": "D (waiting for a disk or a network)",
    "T": "T (stopped by a signal)",
    "t": "t (stopped by a debugger)",
    "Z": "Z (ended)",
}


@dataclass(eq=False, repr=False)
class WorkerSettings:
    """What all the processes have in common that one worker goes through."""

    program: Program
    index: int
    count: int
    buffer_size: int
    min_shm_size: int
    init_fn: bytes | None
    hold_budget: int


class Connection:
    """Starts a worker process and talks to it."""

    def __init__(
        self, settings: WorkerSettings, generation: int, state: bytes | None, hold_after: int
    ) -> None:
        launcher = get_launcher()
        # Copied first: the process may inherit it.
        copy, descriptors = launcher.copy(settings.program)
        self._name = f"worker {settings.index} of {settings.count}"
        self._process = launcher.start()
        self._channel = Channel(self._process.socket)
        self._memory_kind = launcher.memory_kind
        memory_name = memory.new_name()
        self._slots = SlotViews(memory_name)
        self._decoder = Decoder(self._slots, settings.hold_budget)
        self._owner = os.getpid()
        self._released: tuple[list[int], list[int]] = ([], [])
        self._told = self._untold_bytes = 0  # What the worker knows was taken, and does not know.
        self._patience = _NUDGE_AFTER_S
        self._quiet_since: float | None = None
        self._has_warned = False
        self._crash_file: FileIO | None = None
        self._is_open = True
        self.worker_pid: int | None = None
        """The number of the process, once it has said hello."""
        self.report: Any = None
        """What the iterator in the worker last reported."""
        self.decode = self._decoder.decode
        self.discard = self._decoder.discard
        _open_connections.add(self)
        forks.call_in_child(self, Connection.close)
        try:
            if launcher.memory_kind == "memfd":
                self._crash_file = memory.anonymous_file("wholegrain-crash")
                descriptors = [self._crash_file.fileno(), *descriptors]
            start = messages.Start(
                index=settings.index,
                count=settings.count,
                buffer_size=settings.buffer_size,
                min_shm_size=settings.min_shm_size,
                memory_kind=launcher.memory_kind,
                memory_name=memory_name,
                program=copy,
                init_fn=settings.init_fn,
                generation=generation,
                state=state,
                hold_after=hold_after,
                environ=worker_environ(),
                path=module_path(),
                argv=list(sys.argv),
                directory=_current_directory(),
                has_crash_file=self._crash_file is not None,
                set_up=set_up.names(),
            )
            self._send(dumps(start), descriptors)
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes, descriptors: list[int] | None = None) -> None:
        # Whether the worker still lives is told by what it sends: all that is taken first.
        try:
            self._channel.send(data, descriptors or ())
        except OSError as error:
            if is_interruption(error):
                raise

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that the worker works for."""
        return self._owner != os.getpid()

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""
        return self._is_open

    def receive(self) -> Any:
        """Wait for elements, for their end, or for an error.

        Raises:
            EOFError: If the worker died.
        """
        channel = self._channel
        while True:
            if not channel.has_message() and not channel.readable_within(self._patience):
                self._wait_nudging()
            message = self._receive_message()
            if self._is_content(message):
                return message

    def _wait_nudging(self) -> None:
        """Ask the worker for what is finished, and wait."""
        self.nudge()
        if self._channel.readable_within(_NUDGE_AFTER_S):
            self._patience = _NUDGE_AFTER_S
            return
        self._patience = min(2 * self._patience, _NUDGE_AFTER_MOST_S)
        self.note_quiet()
        while not self._channel.readable_within(QUIET_S):
            self.note_quiet()

    def note_quiet(self) -> None:
        """Note that the consumer waits for the worker; say so if the worker does not run.

        Said after some seconds if the process was stopped, else after a minute.
        """
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        pid = self.worker_pid or self._process.starter_pid
        if pid is None or self._has_warned or now - self._quiet_since < QUIET_S:
            return
        state = process_state(pid)
        is_stopped = state in _STOPPED
        if is_stopped or now - self._quiet_since > _LONG_S:
            self._has_warned = True
            who = self._name if self.worker_pid else f"the process that starts {self._name}"
            logger().warning(
                "Waiting for %s: it (process %d) has sent nothing for %d seconds, and its state is"
                " %s.%s",
                who,
                pid,
                now - self._quiet_since,
                _STATES.get(state, state or "unknown"),
                f" `kill -CONT {pid}` makes it go on." if is_stopped else "",
            )

    def receive_arrived(self) -> Any:
        """Return the next elements, their end, or an error, if it is there; None if not yet.

        Raises:
            EOFError: If the worker died.
        """
        channel = self._channel
        while channel.has_message() or channel.readable_within(0):
            message = self._receive_message()
            if self._is_content(message):
                return message
        return None

    def _receive_message(self) -> Any:
        self._quiet_since = None
        try:
            return self._channel.receive()
        except EOFError:
            if self.worker_pid is None and self._is_open:
                error = self._process.start_error()
                if error is not None:
                    raise error from None
            raise

    def _is_content(self, message: Any) -> bool:
        """Take in what a message says beside elements; say whether it is about those."""
        kind = message[0]
        if kind == messages.SEGMENT:
            _, number, size, count, name = message
            self._add_memory(number, size, count, name)
        elif kind == messages.RETIRED:
            self._slots.remove(message[1])
        elif kind == messages.HELLO:
            self.worker_pid = message[1]
        elif kind == messages.REPORT:
            self.report = message[1] or self.report
        else:
            if kind == messages.RECORDS:
                message[3][:] = self._decoder.receive(message[2], message[3])
            return True
        return False

    def _add_memory(self, number: int, size: int, count: int, name: str | None) -> None:
        try:
            if name is None and self._channel.has_lost_descriptors:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            handle = self._channel.descriptors.popleft() if name is None else name
            self._slots.add(number, size, count, handle)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise OSError(
                errno.EMFILE,
                f"{error.strerror}: this process cannot open the shared memory that {self._name}"
                " sends elements through. Close files, or raise the limit (`ulimit -n`)",
            ) from None

    @property
    def socket(self) -> socket.socket:
        """What to wait on for messages."""
        return self._process.socket

    @property
    def has_message(self) -> bool:
        """Whether a message has arrived that the socket does not show any more."""
        return self._channel.has_message()

    def nudge(self) -> None:
        """Ask for what is finished: the consumer waits."""
        self._send(_NUDGE)

    def assign(self, number: int, state: bytes, singly: int) -> None:
        """Have the worker go to a state, once it has done what it was given before.

        It is told which slots came free, too: those up to the last call. If it got all back at
        once, it would return memory to the system that it needs for the next element.

        Args:
            number: The generation that what it sends is of.
            state: Where to go.
            singly: How many elements it sends one by one.
        """
        released, self._released = self._released, self._slots.take_released()
        if any(released):
            self._send(pickle.dumps((messages.TAKEN, -1, 0, *released), 5))
        self._send(pickle.dumps((messages.STRETCH, number, state, singly), 5))

    def nbytes_of(self, item: Any, kind: int) -> int:
        """Return about how much memory an element of a message takes."""
        if kind == messages.PLAIN:
            return 64 + (len(item) if isinstance(item, (str, bytes)) else 0)
        _, blocks, rest = item
        nbytes = 256 + (len(rest) if isinstance(rest, bytes) else 0)
        for block in blocks:
            nbytes += self._slots.size_of(block) if isinstance(block, int) else len(block)
        return nbytes

    def cancel(self, number: int = 0) -> None:
        """Have the worker forget what it was given, or one thing that it has not begun."""
        self._send(pickle.dumps((messages.CANCEL, number)))

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
            released = self._slots.take_released()
            self._send(pickle.dumps((messages.TAKEN, generation, taken, *released), 5))

    def reposition(self, generation: int, state: bytes) -> None:
        """Have the worker go on from a state. What it sends is of that generation then."""
        self._told = self._untold_bytes = 0
        self._send(pickle.dumps((messages.REPOSITION, generation, state, 0), 5))

    def exit_code(self) -> int | None:
        """Return how the process ended, if known; end it first if it has not."""
        return self._process.exit_code()

    def crash_report(self) -> str:
        """Return what Python had to say when native code crashed, if anything."""
        if self._crash_file is None:
            return ""
        with contextlib.suppress(OSError, ValueError):  # It may have been closed.
            return os.pread(self._crash_file.fileno(), 1 << 16, 0).decode(errors="replace").strip()
        return ""

    def __del__(self) -> None:
        # Of one that nobody has got hold of, because its start was interrupted.
        if getattr(self, "_is_open", False):
            self.close()

    def close(self) -> None:
        """End the worker; do not wait for it. Arrays that came from it stay valid."""
        if not self._is_open:
            return
        self._is_open = False
        _open_connections.discard(self)
        if self.is_foreign:
            self._channel.detach()
        else:
            self._channel.close()
            self._process.abandon()
            if self._memory_kind == "named":
                self._slots.forget_names()
        if self._crash_file is not None:
            self._crash_file.close()


def process_state(pid: int) -> str:
    """Return the letter that Linux has for what a process does; empty if it does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.sep  # It was removed.


_open_connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _close_all() -> None:
    ending.exiting.set()
    for connection in list(_open_connections):
        connection.close()


atexit.register(_close_all)
