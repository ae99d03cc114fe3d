"""Starts the fork server, before anything that is slow to import.

The first batch has to wait for this process, half of the time for its import of numpy. Meanwhile
the main process can import what it needs to communicate with it.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence

from wholegrain._workers.local.interpreter import command, environ

_SERVE = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from wholegrain._workers.local.fork_server import serve; serve(*sys.argv[1:3])"
)
_PATIENCE_S = 2.0

_forgotten: list[int] = []
"""Processes whose socket was closed, and that still have to be waited for."""


def _reap_forgotten() -> None:
    for pid in _forgotten[:]:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _forgotten.remove(pid)


def _closed_outputs() -> Iterator[tuple[int, int, str, int, int]]:
    """Yield what opens the output streams that the new process would not inherit.

    They have to be open from its beginning: libraries that it loads would take their numbers.
    """
    for number in (1, 2):
        is_inherited = False
        with contextlib.suppress(OSError):
            is_inherited = os.get_inheritable(number)
        if not is_inherited:
            yield os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0


class ServerProcess:
    """The process of the fork server, and the socket to it.

    Args:
        preload: The modules that it imports before it forks.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        _reap_forgotten()
        self.pid = 0
        self._running = True
        # SOCK_SEQPACKET keeps message boundaries, so requests need neither framing nor a lock.
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = command(_SERVE, str(os.getpid()), ",".join(preload))
            self.pid = os.posix_spawn(
                program[0],
                program,
                environ(),
                # The socket becomes standard input, a descriptor that every process has.
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), *_closed_outputs()],
                # Ctrl-C in the terminal must reach only the main process.
                setpgroup=0,
                # Signals that this thread has blocked must not be blocked in workers.
                setsigmask=(),
            )

    def __del__(self) -> None:
        # The start was interrupted, or the credentials of this process have changed. The fork
        # server exits once the socket is closed; the next start waits for it.
        self.socket.close()
        if self.pid and self._running:
            _forgotten.append(self.pid)

    def close(self) -> None:
        """End the process and wait for it."""
        self.socket.close()
        self.wait()

    def disown(self) -> None:
        """Forget the process in a forked child, which is not its parent."""
        self._running = False

    def is_running(self) -> bool:
        """Return whether the process is still running."""
        if self._running:
            try:
                self._running = os.waitpid(self.pid, os.WNOHANG)[0] == 0
            except ChildProcessError:  # The user's program has waited for all of its children.
                self._running = False
        return self._running

    def kill(self) -> None:
        """Kill the process."""
        # It may run as another user, if this process has changed its user since.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, 9)

    def wait(self) -> None:
        """Wait for the process to exit; kill it if that takes too long."""
        deadline = time.monotonic() + _PATIENCE_S
        pause = 0.0005
        while self.is_running():
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
