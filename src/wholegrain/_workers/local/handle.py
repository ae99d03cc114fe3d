"""The main process's side of one worker process on this machine."""

import errno
import os
import pickle
import sys
from io import FileIO

from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._read import machine
from wholegrain._workers import messages
from wholegrain._workers.backend import Message, WorkerExit, WorkerHandle, WorkerSpec
from wholegrain._workers.failures import describe_exit
from wholegrain._workers.local import memory
from wholegrain._workers.local.channel import RETIRED, SEGMENT, Channel, Start
from wholegrain._workers.local.interpreter import module_path, worker_environ
from wholegrain._workers.local.launcher import Launcher
from wholegrain._workers.local.ring import SlotViews
from wholegrain._workers.pickling import dumps
from wholegrain._workers.transport import Decoder

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


class LocalHandle(WorkerHandle):
    """A worker process: its socket, its slots of shared memory, and how it ended.

    Args:
        launcher: Starts the process.
        spec: Describes the worker.
    """

    def __init__(self, launcher: Launcher, spec: WorkerSpec) -> None:
        self._owner = os.getpid()
        self._is_open = False
        # The program is copied first, because the process may inherit the copy.
        copy, descriptors = launcher.copy(spec.program)
        self._name = spec.name
        self._process = launcher.start()
        self._channel = Channel(self._process.socket)
        self._memory_kind = launcher.memory_kind
        memory_name = memory.new_name()
        self._slots = SlotViews(memory_name)
        self._decoder = Decoder(self._slots, spec.hold_budget)
        self._crash_file: FileIO | None = None
        self._pid: int | None = None
        self._is_open = True
        try:
            if launcher.memory_kind == "memfd":
                self._crash_file = memory.anonymous_file("wholegrain-crash")
                descriptors = [self._crash_file.fileno(), *descriptors]
            start = Start(
                job=spec.job(),
                program=copy,
                min_shm_size=spec.min_shm_size,
                memory_kind=launcher.memory_kind,
                memory_name=memory_name,
                environ=worker_environ(),
                path=module_path(),
                argv=list(sys.argv),
                directory=_current_directory(),
                has_crash_file=self._crash_file is not None,
            )
            self._send(dumps(start), descriptors)
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes, descriptors: list[int] | None = None) -> None:
        # If the worker has died, `receive` notices it after all of its messages were received.
        try:
            self._channel.send(data, descriptors or ())
        except OSError as error:
            if is_interruption(error):
                raise

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    def send(self, message: Message) -> None:
        self._send(pickle.dumps(message, 5))

    def receive(self, timeout_s: float) -> Message | None:
        channel = self._channel
        while channel.has_message() or channel.readable_within(timeout_s):
            try:
                message: Message = channel.receive()
            except EOFError:
                self._check_started()
                raise
            kind = message[0]
            if kind == SEGMENT:
                self._add_memory(*message[1:])
            elif kind == RETIRED:
                self._slots.remove(message[1])
            else:
                if kind == messages.HELLO:
                    self._pid = message[1]
                return message
        return None

    def _check_started(self) -> None:
        if self._pid is None and self._is_open:
            error = self._process.start_error()
            if error is not None:
                raise error from None

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
    def has_message(self) -> bool:
        """Whether a whole message is in the channel's buffer, which polling does not show."""
        return self._channel.has_message()

    def fileno(self) -> int:
        """Return the descriptor to wait on for messages."""
        return self._process.socket.fileno()

    def memory_bytes(self) -> int | None:
        return None if self._pid is None else machine.private_memory(self._pid)

    def stuck_because(self, quiet_s: float) -> str | None:
        """Return a warning at once if the process was stopped, else after a minute."""
        pid = self._pid or self._process.starter_pid
        if pid is None:
            return None
        state = process_state(pid)
        is_stopped = bool(state) and state in _STOPPED
        if not is_stopped and quiet_s <= _LONG_S:
            return None
        name = self._name if self._pid else f"the process that starts {self._name}"
        advice = f" `kill -CONT {pid}` resumes it." if is_stopped else ""
        return (
            f"Waiting for {name}: it (process {pid}) has sent nothing for {int(quiet_s)} seconds,"
            f" and its state is {_STATES.get(state, state or 'unknown')}.{advice}"
        )

    def exit(self) -> WorkerExit:
        code = self._process.exit_code()
        hint = ""
        if code is not None and code >= 0:
            hint = "Code that it runs may have called `sys.exit` or `os._exit`."
        return WorkerExit(
            f"exit code {describe_exit(code)}",
            report=self._crash_report(),
            is_blameless=code is None,  # It died together with the fork server.
            hint=hint,
        )

    def _crash_report(self) -> str:
        """Return the stack that faulthandler wrote if native code crashed."""
        if self._crash_file is None:
            return ""
        with suppress_errors(OSError, ValueError):  # The file may have been closed.
            return os.pread(self._crash_file.fileno(), 1 << 16, 0).decode(errors="replace").strip()
        return ""

    def __del__(self) -> None:
        # Reached if the start was interrupted before the caller got a reference.
        if getattr(self, "_is_open", False):
            self.close()

    def close(self) -> None:
        if self._owner != os.getpid():
            self.disown()
        if self._is_open:
            self._is_open = False
            self._channel.close()
            self._process.abandon()
            if self._memory_kind == "named":
                self._slots.forget_names()
            if self._crash_file is not None:
                self._crash_file.close()

    def disown(self) -> None:
        if self._is_open:
            self._is_open = False
            self._channel.detach()
            if self._crash_file is not None:
                self._crash_file.close()


def process_state(pid: int) -> str:
    """Return Linux's one-letter state of a process, or "" if it is unknown."""
    with suppress_errors(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0].decode()
    return ""


def _current_directory() -> str:
    with suppress_errors(OSError):
        return os.getcwd()
    return os.sep  # The directory was removed.
