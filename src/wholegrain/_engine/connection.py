"""The main process's side of one worker process, from its start to its end."""

# Without the enumerations around it, which take longer to import than a worker to start.
import _socket as socket
import atexit
import contextlib
import os
import pickle
import sys
import weakref
from dataclasses import dataclass
from typing import Any

from wholegrain._engine import ending, memory, messages, set_up
from wholegrain._engine.channel import Channel
from wholegrain._engine.interpreter import module_path, worker_environ
from wholegrain._engine.launcher import get_launcher
from wholegrain._engine.pickling import dumps
from wholegrain._engine.program import Program
from wholegrain._engine.ring import SlotViews
from wholegrain._engine.transport import Decoder

_NUDGE = pickle.dumps((messages.NUDGE,))
# How long to wait before the worker is asked for what it has; longer where it had nothing.
_NUDGE_AFTER_S = 1e-3
_NUDGE_AFTER_MOST_S = 16e-3


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
        self._process = launcher.start()
        self._channel = Channel(self._process.socket)
        self._memory_kind = launcher.memory_kind
        memory_name = memory.new_name()
        self._slots = SlotViews(memory_name)
        self._decoder = Decoder(self._slots, settings.hold_budget)
        self._owner = os.getpid()
        self._released: list[int] = []
        self._told = self._untold_bytes = 0  # What the worker knows was taken, and does not know.
        self._patience = _NUDGE_AFTER_S
        self._crash_file = -1
        self._is_open = True
        self.worker_pid: int | None = None
        """The number of the process, once it has said hello."""
        self.report: Any = None
        """What the iterator in the worker last reported."""
        self.decode = self._decoder.decode
        self.discard = self._decoder.discard
        _open_connections.add(self)
        if launcher.memory_kind == "memfd":
            self._crash_file = os.memfd_create("wholegrain-crash", os.MFD_CLOEXEC)
            descriptors = [self._crash_file, *descriptors]
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
            has_crash_file=self._crash_file >= 0,
            set_up=set_up.names(),
        )
        self._send(dumps(start), descriptors)

    def _send(self, data: bytes, descriptors: list[int] | None = None) -> None:
        # Whether the worker still lives is told by what it sends: all that is taken first.
        with contextlib.suppress(OSError):
            self._channel.send(data, descriptors or ())

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
            if channel.has_message() or channel.readable_within(self._patience):
                message = channel.receive()
            else:
                message = self._receive_nudging()
            if self._is_content(message):
                return message

    def _receive_nudging(self) -> Any:
        """Ask the worker for what is finished, and wait."""
        self.nudge()
        if self._channel.readable_within(_NUDGE_AFTER_S):
            self._patience = _NUDGE_AFTER_S
        else:
            self._patience = min(2 * self._patience, _NUDGE_AFTER_MOST_S)
        return self._channel.receive()

    def receive_arrived(self) -> Any:
        """Return the next elements, their end, or an error, if it is there; None if not yet.

        Raises:
            EOFError: If the worker died.
        """
        channel = self._channel
        while channel.has_message() or channel.readable_within(0):
            message = channel.receive()
            if self._is_content(message):
                return message
        return None

    def _is_content(self, message: Any) -> bool:
        """Take in what a message says beside elements; say whether it is about those."""
        kind = message[0]
        if kind == messages.SEGMENT:
            _, number, size, count, name = message
            handle = self._channel.descriptors.popleft() if name is None else name
            self._slots.add(number, size, count, handle)
        elif kind == messages.RETIRED:
            self._slots.remove(message[1])
        elif kind == messages.HELLO:
            self.worker_pid = message[1]
        elif kind == messages.REPORT:
            self.report = message[1] or self.report
        else:
            if kind == messages.RECORDS:
                for number, layout in message[2]:
                    self._decoder.add_layout(number, layout)
            return True
        return False

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
        if released:
            self._send(pickle.dumps((messages.TAKEN, -1, 0, released), 5))
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
            self._send(pickle.dumps((messages.TAKEN, generation, taken, released), 5))

    def reposition(self, generation: int, state: bytes) -> None:
        """Have the worker go on from a state. What it sends is of that generation then."""
        self._told = self._untold_bytes = 0
        self._send(pickle.dumps((messages.REPOSITION, generation, state, 0), 5))

    def exit_code(self) -> int | None:
        """Return how the process ended, if known; end it first if it has not."""
        return self._process.exit_code()

    def crash_report(self) -> str:
        """Return what Python had to say when native code crashed, if anything."""
        if self._crash_file < 0:
            return ""
        with contextlib.suppress(OSError):
            return os.pread(self._crash_file, 1 << 16, 0).decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """End the worker; do not wait for it. Arrays that came from it stay valid."""
        if not self._is_open:
            return
        self._is_open = False
        if self.is_foreign:
            self._channel.detach()
        else:
            self._channel.close()
            self._process.abandon()
            if self._memory_kind == "named":
                self._slots.forget_names()
        if self._crash_file >= 0:
            os.close(self._crash_file)
            self._crash_file = -1


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
