"""The launcher of workers in new interpreters: slower than forking, and works on every system."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

from wholegrain._workers.local import memory
from wholegrain._workers.local.interpreter import command, environ
from wholegrain._workers.local.launcher import WorkerProcess
from wholegrain._workers.program import Program, ProgramCopy, SharedCopies

_WORK = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from wholegrain._workers.local.process import run_spawned; run_spawned(sys.argv[1])"
)


class _SpawnedWorker:
    """A worker in a new interpreter."""

    def __init__(
        self, process: subprocess.Popen[bytes], sock: socket.socket, launcher: "SpawnLauncher"
    ) -> None:
        self.socket = sock
        self._process = process
        self._launcher = launcher

    @property
    def starter_pid(self) -> int | None:
        return None

    def start_error(self) -> OSError | None:
        return None  # A failed start raises in `start`, and there is no worker.

    def exit_code(self) -> int | None:
        self._process.kill()
        return self._process.wait()

    def abandon(self) -> None:
        # The process becomes a zombie unless it is waited for.
        self._launcher.bury(self._process)


class SpawnLauncher:
    """Starts a new interpreter for each worker."""

    def __init__(self) -> None:
        self.memory_kind = memory.choose_kind()
        self._shared = SharedCopies(self.memory_kind, objects=True)
        self._pid = os.getpid()
        self._ending: set[subprocess.Popen[bytes]] = set()

    @property
    def is_alive(self) -> bool:
        return self._pid == os.getpid()

    @property
    def is_current(self) -> bool:
        return True

    def start(self) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            if sys.platform == "win32":
                process = subprocess.Popen(command(_WORK, ""), stdin=subprocess.PIPE, env=environ())
                assert process.stdin is not None
                with process.stdin as pipe:
                    pipe.write(theirs.share(process.pid))
            else:
                process = subprocess.Popen(
                    command(_WORK, str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=environ(),
                    process_group=0,
                )
        return _SpawnedWorker(process, ours, self)

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        if program.inline is not None:
            return program.copy_at(inline=program.inline), []
        shared, descriptors = self._shared.copy(program)
        return program.copy_at(shared=shared), descriptors

    def bury(self, process: subprocess.Popen[bytes]) -> None:
        """Wait in the background for a worker whose socket is closed; kill it if necessary."""
        self._ending.add(process)
        with contextlib.suppress(RuntimeError):  # At shutdown, `close` waits for it instead.
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
        self._shared.close()

    def disown(self) -> None:
        for process in self._ending:
            process.returncode = 0
