"""Workers that a small process forks (`fork_server.py`), in milliseconds."""

# Without the enumerations around it, which take longer to import than a worker to start.
import _socket as socket
import contextlib
import itertools
import os
import threading
import weakref
from array import array

from wholegrain._engine import memory, requests
from wholegrain._engine.launcher import WorkerProcess
from wholegrain._engine.program import Program, ProgramCopy
from wholegrain._engine.server_process import ServerProcess
from wholegrain._engine.shared_copies import SharedCopies


class _ForkedWorker:
    """A worker that the fork server started."""

    def __init__(self, launcher: "ForkLauncher", number: int, sock: socket.socket) -> None:
        self.socket = sock
        self._launcher = launcher
        self._number = number

    def exit_code(self) -> int | None:
        code = self._launcher.ask(requests.EXIT_CODE, self._number)
        return None if code == requests.UNKNOWN else code

    def abandon(self) -> None:
        pass  # The fork server saw the socket being closed.


class ForkLauncher:
    """Starts workers by asking the fork server, which it starts first."""

    def __init__(self, server: ServerProcess) -> None:
        self.memory_kind = memory.choose_kind()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._shared = SharedCopies(self.memory_kind)
        self._regions: weakref.WeakKeyDictionary[Program, ProgramCopy] = weakref.WeakKeyDictionary()
        self._copying = threading.Lock()
        self._can_write = True
        self._process = server
        self._control = socket.socket(fileno=server.take_socket())
        self._pid = os.getpid()

    @property
    def is_alive(self) -> bool:
        return self._pid == os.getpid() and self._process.is_running()

    def start(self) -> WorkerProcess:
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [theirs.fileno()]))]
            # If the fork server is gone, so is `theirs`: the next read says that it died.
            with contextlib.suppress(ConnectionError):
                self._control.sendmsg([requests.REQUEST.pack(requests.FORK, number, 0)], rights)
        return _ForkedWorker(self, number, ours)

    def ask(self, request: bytes, number: int, size: int = 0) -> int:
        """Send a request and wait for the answer."""
        with self._lock:
            try:
                self._control.send(requests.REQUEST.pack(request, number, size))
                answer = self._control.recv(64)
            except OSError:
                answer = b""
        if not answer:
            return requests.UNKNOWN
        return int(requests.REPLY.unpack(answer)[0])

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        if program.inline is not None:
            return program.copy_at(inline=program.inline), []
        with self._copying:
            copy = self._regions.get(program)
            if copy is None and self._can_write:
                copy = self._write(program)
        return (copy, []) if copy is not None else self._shared.copy(program)

    def _write(self, program: Program) -> ProgramCopy | None:
        """Copy a program into the fork server: workers inherit it, and share it until written.

        Private memory comes in huge pages, which makes this several times quicker than memory
        that is shared from the start. And `bytes` can be made there for all of them: in memory
        that is only shared, every worker would have to make them again.
        """
        from wholegrain._engine.foreign_memory import read_from_process, write_to_process

        number = next(self._numbers)
        objects = program.objects
        sizes = array("q", [len(one) if type(one) is bytes else -len(one) for one in objects])
        end = program.nbytes_without_objects
        nbytes = end + sizes.itemsize * len(sizes)
        address = self.ask(requests.ALLOCATE, number, nbytes)
        if address <= 0:
            return None
        pid = self._process.pid
        try:
            pieces = [(address + start, piece) for start, piece in program.pieces(objects=False)]
            write_to_process(pid, [*pieces, (address + end, memoryview(sizes).cast("B"))])
            if objects:
                if self.ask(requests.MAKE_OBJECTS, number, len(objects)) <= 0:
                    raise OSError("There is not enough memory.")
                places = array("q", sizes)
                read_from_process(pid, address + end, memoryview(places).cast("B"))
                write_to_process(pid, list(zip(places, objects, strict=True)))
        except OSError:
            self._can_write = False  # Forbidden here: by a sandbox, most likely.
            self._drop(number)
            return None
        weakref.finalize(program, self._drop, number)
        copy = program.copy_at(region=number)
        self._regions[program] = copy
        return copy

    def _drop(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(requests.REQUEST.pack(requests.DROP, number, 0))

    def close(self) -> None:
        """End the fork server and its workers, and wait until they have ended."""
        self._control.close()
        self._process.wait()

    def disown(self) -> None:
        """Forget the fork server in a forked child: it is the parent's."""
        self._control.close()
