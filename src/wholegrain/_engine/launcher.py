"""How worker processes come to be: forked from a clean process, or each started anew.

On Linux a `ForkLauncher` keeps a small process (`fork_server.py`) that forks workers in
milliseconds. Elsewhere, or with WHOLEGRAIN_WORKER_START=spawn, a `SpawnLauncher` starts a new
interpreter for each. Neither imports the user's main script, and neither forks this process.

Everything that takes long to import is imported where it is needed: while the fork server starts,
the main process can do the same.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import socket
import subprocess
import sys
import threading
import weakref
from array import array
from typing import TYPE_CHECKING, Protocol

from wholegrain._core.log import logger
from wholegrain._engine import memory, requests

if TYPE_CHECKING:
    from wholegrain._engine.program import Program, ProgramCopy

# Set before anything else is imported, and before worker-side code could look for devices.
_SET_UP = "import sys; sys.path[:] = sys.argv[4:]; "
_SERVE = (
    f"{_SET_UP}import gc; gc.disable(); "
    "from wholegrain._engine.fork_server import serve; serve(*sys.argv[1:4])"
)
_WORK = _SET_UP + "from wholegrain._engine.worker import run_spawned; run_spawned(sys.argv[1])"

_HIDDEN_DEVICES = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
}
# The same for all processes, so that a replaced worker hashes strings as the first one did.
_HASH_SEED = str(int.from_bytes(os.urandom(4), "little"))


def worker_environ() -> dict[str, str]:
    """Return the environment of workers: this process's, without its accelerators.

    A worker that imports jax or torch would otherwise reserve memory of the devices that the main
    process trains on. WHOLEGRAIN_WORKER_DEVICES=1 leaves them visible. WHOLEGRAIN_WORKER=1 tells
    code that it runs in a worker.
    """
    environ = {**os.environ, "WHOLEGRAIN_WORKER": "1"}
    if environ.get("WHOLEGRAIN_WORKER_DEVICES", "0") in ("", "0"):
        environ.update(_HIDDEN_DEVICES)
    else:
        _warn_of_devices()
    return environ


@functools.cache
def _warn_of_devices() -> None:
    logger().warning(
        "Worker processes can see the accelerators of this process, because the environment"
        " variable WHOLEGRAIN_WORKER_DEVICES is set. Each of them may reserve memory there."
    )


class WorkerProcess(Protocol):
    """A process that was started, and the connection to it."""

    socket: socket.socket

    def exit_code(self) -> int | None:
        """Return how it ended, if known; end it first if it has not."""

    def abandon(self) -> None:
        """Take no more interest. Its socket is already closed, so it ends by itself."""


class Launcher(Protocol):
    """Starts worker processes, and gives them programs."""

    memory_kind: memory.Kind

    @property
    def is_alive(self) -> bool:
        """Whether it can start workers."""

    def start(self) -> WorkerProcess:
        """Start a worker. Does not wait for it."""

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        """Return where workers find `program`, and descriptors to be sent along."""

    def close(self) -> None:
        """End everything that was started. The process is about to end."""

    def disown(self) -> None:
        """Forget everything that was started: this is a forked child."""


def _command(code: str, *arguments: str) -> list[str]:
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return [sys.executable, *flags, "-c", code, *arguments, *module_path()]


def module_path() -> list[str]:
    """Return where this process looks for modules."""
    return [str(entry) for entry in sys.path]


def _preload() -> list[str]:
    """Return the modules that workers will need: of this package, those in use here.

    But not what reads files: the libraries of some formats start threads when imported.
    WHOLEGRAIN_PRELOAD names more, with commas between them. What they do when imported has to
    survive a fork: they may start no threads, and open nothing that workers cannot share.
    """
    ours = [
        name
        for name in sys.modules
        if name.startswith("wholegrain.") and not name.startswith("wholegrain.sources.")
    ]
    asked = os.environ.get("WHOLEGRAIN_PRELOAD", "")
    return ours + [name.strip() for name in asked.split(",") if name.strip()]


def _environ() -> dict[str, str]:
    environ = worker_environ()
    environ.setdefault("PYTHONHASHSEED", _HASH_SEED)
    # Workers share the processors: a pool of threads in each of them only gets in the way. And
    # a process to be forked should not have threads.
    if "OMP_NUM_THREADS" not in environ:
        environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return environ


class _SharedCopies:
    """Copies of programs in shared memory, as long as the programs live."""

    def __init__(self, kind: memory.Kind) -> None:
        self._kind: memory.Kind = kind
        self._lock = threading.Lock()
        self._handles: weakref.WeakKeyDictionary[Program, memory.Handle] = (
            weakref.WeakKeyDictionary()
        )

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        with self._lock:
            handle = self._handles.get(program)
            if handle is None:
                handle = memory.create_filled(self._kind, program.pieces(), program.nbytes)
                self._handles[program] = handle
                weakref.finalize(program, _let_go, handle, os.getpid())
        copy = program.copy_at(shared=handle)
        return copy, [handle] if isinstance(handle, int) else []


def _let_go(handle: memory.Handle, pid: int) -> None:
    if isinstance(handle, int):
        os.close(handle)
    elif pid == os.getpid():
        memory.forget(handle)


class _ForkedWorker:
    """A worker that the fork server started."""

    def __init__(self, launcher: ForkLauncher, number: int, sock: socket.socket) -> None:
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

    def __init__(self) -> None:
        self.memory_kind = memory.choose_kind()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._shared = _SharedCopies(self.memory_kind)
        self._regions: weakref.WeakKeyDictionary[Program, ProgramCopy] = weakref.WeakKeyDictionary()
        self._copying = threading.Lock()
        self._can_write = True
        # Whole messages in order, with descriptors: requests need no framing, nor a lock.
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                _command(_SERVE, str(theirs.fileno()), str(os.getpid()), ",".join(_preload())),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environ(),
                # Ctrl-C in the terminal is for the main process to handle.
                process_group=0,
            )
        self._pid = os.getpid()

    @property
    def is_alive(self) -> bool:
        return self._pid == os.getpid() and self._process.poll() is None

    def start(self) -> WorkerProcess:
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs:
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
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def disown(self) -> None:
        """Forget the fork server in a forked child: it is the parent's."""
        self._control.close()
        self._process.returncode = 0  # Else Popen complains that nobody waited for it.


class _SpawnedWorker:
    """A worker in an interpreter of its own."""

    def __init__(
        self, process: subprocess.Popen[bytes], sock: socket.socket, launcher: SpawnLauncher
    ) -> None:
        self.socket = sock
        self._process = process
        self._launcher = launcher

    def exit_code(self) -> int | None:
        self._process.kill()
        return self._process.wait()

    def abandon(self) -> None:
        # Somebody has to wait for it, or it stays behind as a zombie.
        self._launcher.bury(self._process)


class SpawnLauncher:
    """Starts an interpreter for each worker. Slower, and works everywhere."""

    def __init__(self) -> None:
        self.memory_kind = memory.choose_kind()
        self._shared = _SharedCopies(self.memory_kind)
        self._pid = os.getpid()
        self._ending: set[subprocess.Popen[bytes]] = set()

    @property
    def is_alive(self) -> bool:
        return self._pid == os.getpid()

    def start(self) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            if sys.platform == "win32":
                process = subprocess.Popen(
                    _command(_WORK, "", "", ""), stdin=subprocess.PIPE, env=_environ()
                )
                assert process.stdin is not None
                with process.stdin as pipe:
                    pipe.write(theirs.share(process.pid))
            else:
                process = subprocess.Popen(
                    _command(_WORK, str(theirs.fileno()), "", ""),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=_environ(),
                    process_group=0,
                )
        return _SpawnedWorker(process, ours, self)

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        if program.inline is not None:
            return program.copy_at(inline=program.inline), []
        return self._shared.copy(program)

    def bury(self, process: subprocess.Popen[bytes]) -> None:
        """See to it that a worker ends, which has been told so."""
        self._ending.add(process)
        with contextlib.suppress(RuntimeError):  # The program is ending: `close` comes next.
            threading.Thread(target=self._wait, args=(process,), daemon=True).start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._ending.discard(process)

    def close(self) -> None:
        for process in list(self._ending):
            self._wait(process)

    def disown(self) -> None:
        for process in self._ending:
            process.returncode = 0


_current: Launcher | None = None
_starting = threading.Lock()


def get_launcher() -> Launcher:
    """Return the launcher of this process; start it if there is none, or if it died."""
    global _current
    with _starting:
        if _current is None or not _current.is_alive:
            if _current is not None:
                _current.close()
            _current = _choose()
        return _current


def _choose() -> Launcher:
    asked = os.environ.get("WHOLEGRAIN_WORKER_START", "auto")
    if asked not in ("auto", "fork", "spawn"):
        raise ValueError(
            f"The environment variable WHOLEGRAIN_WORKER_START is {asked!r}. It can be auto, fork"
            " or spawn."
        )
    if asked == "fork" or (asked == "auto" and sys.platform == "linux"):
        return ForkLauncher()
    return SpawnLauncher()


def close_launcher() -> None:
    """End the launcher and its workers; the next worker gets a new one."""
    global _current
    with _starting:
        launcher, _current = _current, None
    if launcher is not None:
        launcher.close()


def _after_fork() -> None:
    global _current, _starting
    _starting = threading.Lock()
    if _current is not None:
        _current.disown()
        _current = None


atexit.register(close_launcher)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
