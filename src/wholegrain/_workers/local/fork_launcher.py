"""Workers that a small process forks (`fork_server.py`), in milliseconds."""

import contextlib
import itertools
import os
import select
import socket
import threading
import weakref
from array import array

from wholegrain._core.interruption import is_interruption
from wholegrain._workers.local import memory, requests
from wholegrain._workers.local.interpreter import credentials
from wholegrain._workers.local.launcher import WorkerProcess
from wholegrain._workers.local.server_process import ServerProcess
from wholegrain._workers.local.shared_copies import SharedCopies
from wholegrain._workers.program import Program, ProgramCopy


class _ForkedWorker:
    """A worker that the fork server started."""

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
        return None if code == requests.UNKNOWN else code

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
        pass  # The fork server saw the socket being closed.


class ForkLauncher:
    """Starts workers by asking the fork server, which it starts first.

    An exception out of a signal handler may end any of the methods anywhere. So every reply says
    which request it is for, and what is kept for a program is let go of with the program.
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
        """The number of the process that starts workers."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        # The process itself may exist for a while after it has let go of all it had.
        return self._pid == os.getpid() and not _is_hung_up(self._control)

    @property
    def is_current(self) -> bool:
        return self._credentials == credentials()

    def start(self) -> WorkerProcess:
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        worker = _ForkedWorker(self, number, ours)
        with theirs:
            self._send(requests.FORK, number, theirs.fileno())
        return worker

    def _send(self, request: bytes, number: int, descriptor: int | None = None) -> int:
        """Send a request; return its own number."""
        serial = next(self._numbers)
        rights = []
        if descriptor is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
        try:
            self._control.sendmsg([requests.REQUEST.pack(request, serial, number)], rights)
        except OSError as error:
            # If the fork server is gone, so is what was sent: the next read says that it died.
            if is_interruption(error) or not (
                isinstance(error, ConnectionError) or self._is_closed
            ):
                raise
        return serial

    @property
    def _is_closed(self) -> bool:
        return self._control.fileno() < 0

    def how_ended(self, number: int) -> tuple[int, int]:
        """Ask for the exit code of a worker, and why it could not be started.

        A worker that has not ended is ended first.
        """
        with self._asking:
            serial = self._send(requests.EXIT_CODE, number)
            while answer := self._receive():
                replied, code, error = requests.REPLY.unpack(answer)
                if replied == serial:  # Others are replies to requests that were interrupted.
                    return code, error
        return requests.UNKNOWN, 0

    def _receive(self) -> bytes:
        try:
            return self._control.recv(64)
        except OSError as error:
            if is_interruption(error):
                raise
            return b""  # The fork server is gone.

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
        """Give the `bytes` of a program to the fork server: workers inherit them, and share them.

        From memory that is only shared, every worker would have to make them again.
        """
        kept = _Kept(self._control, next(self._numbers))
        objects = program.objects
        sizes = [len(objects), *[len(one) if type(one) is bytes else -len(one) for one in objects]]
        head = b"".join(map(requests.SIZE.pack, sizes))
        start = itertools.accumulate(map(len, objects), initial=len(head))
        pieces = [(0, head), *zip(start, objects, strict=False)]
        kind: memory.Kind = "unlinked" if self.memory_kind == "named" else self.memory_kind
        filled = memory.Filled(kind, pieces, len(head) + sum(map(len, objects)))
        with contextlib.closing(filled):
            assert isinstance(filled.handle, int)
            self._send(requests.KEEP, kept.number, filled.handle)
        return kept

    def close(self) -> None:
        """End the fork server and its workers, and wait until they have ended."""
        self._control.close()
        self._process.wait()
        self._shared.close()

    def disown(self) -> None:
        """Forget the fork server in a forked child: it is the parent's."""
        self._control.close()
        self._process.disown()


class _Kept:
    """What the fork server keeps for a program, until this is let go of."""

    def __init__(self, control: socket.socket, number: int) -> None:
        self._control = control
        self.number = number

    def __del__(self) -> None:
        with contextlib.suppress(OSError):  # It is gone, and what it kept.
            self._control.send(requests.REQUEST.pack(requests.DROP, 0, self.number))


def _is_hung_up(sock: socket.socket) -> bool:
    if sock.fileno() < 0:
        return True
    poller = select.poll()
    poller.register(sock, 0)
    return bool(poller.poll(0))
