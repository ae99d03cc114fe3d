"""The launcher of workers that the fork server (`fork_server.py`) forks, in milliseconds."""

import contextlib
import itertools
import os
import select
import socket
import threading
import weakref
from array import array

from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._workers.local import channel, memory
from wholegrain._workers.local.interpreter import credentials
from wholegrain._workers.local.launcher import WorkerProcess
from wholegrain._workers.local.server_process import ServerProcess
from wholegrain._workers.program import Program, ProgramCopy, SharedCopies


class _ForkedWorker:
    """A worker that the fork server has forked."""

    def __init__(self, launcher: "ForkLauncher", number: int, sock: socket.socket) -> None:
        self.socket = sock
        self._launcher = launcher
        self._number = number
        self._ending: tuple[int, int] | None = None

    @property
    def starter_pid(self) -> int | None:
        return self._launcher.server_pid

    def exit_code(self) -> int | None:
        code, _ = self._ask()
        return None if code == channel.UNKNOWN else code

    def start_error(self) -> OSError | None:
        _, error = self._ask()
        if not error:
            return None
        return OSError(
            error,
            f"{os.strerror(error)}: the process {self._launcher.server_pid}, which starts workers,"
            " could not start one",
        )

    def _ask(self) -> tuple[int, int]:
        if self._ending is None:
            self._ending = self._launcher.how_ended(self._number)
        return self._ending

    def abandon(self) -> None:
        pass  # The fork server notices that the socket was closed.


class ForkLauncher:
    """Starts workers by sending requests to the fork server.

    An exception from a signal handler may interrupt any method anywhere. Therefore every reply
    carries the serial number of its request, and objects kept for a program are released together
    with the program.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.memory_kind = memory.choose_kind()
        self._numbers = itertools.count(1)
        self._asking = threading.Lock()
        self._copying = threading.Lock()
        self._shared = SharedCopies(self.memory_kind, objects=False)
        self._kept: weakref.WeakKeyDictionary[Program, _Kept] = weakref.WeakKeyDictionary()
        self._process = server
        self._control = server.socket
        self._pid = os.getpid()
        self._credentials = credentials()

    @property
    def server_pid(self) -> int:
        """The process id of the fork server."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        # The socket is checked, because the process may exist for a while after it was closed.
        return self._pid == os.getpid() and not _is_hung_up(self._control)

    @property
    def is_current(self) -> bool:
        return self._credentials == credentials()

    def start(self) -> WorkerProcess:
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        worker = _ForkedWorker(self, number, ours)
        with theirs:
            self._send(channel.FORK, number, theirs.fileno())
        return worker

    def _send(self, request: bytes, number: int, descriptor: int | None = None) -> int:
        """Send a request; return its serial number."""
        serial = next(self._numbers)
        rights = []
        if descriptor is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
        try:
            self._control.sendmsg([channel.REQUEST.pack(request, serial, number)], rights)
        except OSError as error:
            # If the fork server has died, the next read from the worker's socket reports it.
            if is_interruption(error) or not (
                isinstance(error, ConnectionError) or self._is_closed
            ):
                raise
        return serial

    @property
    def _is_closed(self) -> bool:
        return self._control.fileno() < 0

    def how_ended(self, number: int) -> tuple[int, int]:
        """Request the exit code of a worker, and the `errno` if its start failed.

        A worker that is still running is killed first.
        """
        with self._asking:
            serial = self._send(channel.EXIT_CODE, number)
            while answer := self._receive():
                replied, code, error = channel.REPLY.unpack(answer)
                if replied == serial:  # Others answer requests that were interrupted.
                    return code, error
        return channel.UNKNOWN, 0

    def _receive(self) -> bytes:
        try:
            return self._control.recv(64)
        except OSError as error:
            if is_interruption(error):
                raise
            return b""  # The fork server has died.

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        if program.inline is not None:
            return program.copy_at(inline=program.inline), []
        shared, descriptors = self._shared.copy(program)
        if not program.objects:
            return program.copy_at(shared=shared), descriptors
        with self._copying:
            kept = self._kept.get(program)
            if kept is None:
                kept = self._kept[program] = self._keep(program)
        return program.copy_at(shared=shared, kept=kept.number), descriptors

    def _keep(self, program: Program) -> "_Kept":
        """Send the `bytes` of a program to the fork server, from which workers inherit them.

        Objects cannot lie in shared memory, so every worker would otherwise have its own copy.
        """
        kept = _Kept(self._control, next(self._numbers))
        objects = program.objects
        sizes = [len(objects), *[len(one) if type(one) is bytes else -len(one) for one in objects]]
        head = b"".join(map(channel.SIZE.pack, sizes))
        start = itertools.accumulate(map(len, objects), initial=len(head))
        pieces = [(0, head), *zip(start, objects, strict=False)]
        kind: memory.Kind = "unlinked" if self.memory_kind == "named" else self.memory_kind
        filled = memory.Filled(kind, pieces, len(head) + sum(map(len, objects)))
        with contextlib.closing(filled):
            assert isinstance(filled.handle, int)
            self._send(channel.KEEP, kept.number, filled.handle)
        return kept

    def close(self) -> None:
        """End the fork server and its workers, and wait for them."""
        self._control.close()
        self._process.wait()
        self._shared.close()

    def disown(self) -> None:
        """Forget the fork server in a forked child; it belongs to the parent."""
        self._control.close()
        self._process.disown()


class _Kept:
    """Objects that the fork server keeps for a program until this object is deleted."""

    def __init__(self, control: socket.socket, number: int) -> None:
        self._control = control
        self.number = number

    def __del__(self) -> None:
        with suppress_errors(OSError):  # The fork server has died, and with it the objects.
            self._control.send(channel.REQUEST.pack(channel.DROP, 0, self.number))


def _is_hung_up(sock: socket.socket) -> bool:
    if sock.fileno() < 0:
        return True
    poller = select.poll()
    poller.register(sock, 0)
    return bool(poller.poll(0))
