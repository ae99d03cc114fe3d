"""Starts the fork server, before anything that takes time to import.

Whoever waits for the first batch waits for this process: numpy alone takes it half of that time.
What the main process needs to talk to it can be imported meanwhile.
"""

import contextlib
import os
import socket
import time
from collections.abc import Sequence

from wholegrain._workers.local.interpreter import command, environ

_SERVE = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from wholegrain._workers.local.fork_server import serve; serve(*sys.argv[1:3])"
)
_PATIENCE_S = 2.0

_forgotten: list[int] = []
"""Processes that have been told to end, and that nobody has waited for."""


def _reap_forgotten() -> None:
    for pid in _forgotten[:]:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _forgotten.remove(pid)


class ServerProcess:
    """The fork server as a process: how to talk to it, and whether it runs.

    Args:
        preload: The modules it imports before it forks.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        _reap_forgotten()
        self.pid = 0
        self._running = True
        # Whole messages in order, with descriptors: requests need no framing, nor a lock.
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = command(_SERVE, str(os.getpid()), ",".join(preload))
            self.pid = os.posix_spawn(
                program[0],
                program,
                environ(),
                # Standard input: the descriptor that is there in every process.
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                # Ctrl-C in the terminal is for the main process to handle.
                setpgroup=0,
                # What this thread does not want to hear of, workers and their starter have to.
                setsigmask=(),
            )

    def __del__(self) -> None:
        # Interrupted, or for other credentials than this process has now. Without the socket the
        # process ends, and whoever starts the next one waits for it.
        self.socket.close()
        if self.pid and self._running:
            _forgotten.append(self.pid)

    def close(self) -> None:
        """End it."""
        self.socket.close()
        self.wait()

    def disown(self) -> None:
        """Forget it in a forked child, which has no children yet."""
        self._running = False

    def is_running(self) -> bool:
        """Whether it has not ended."""
        if self._running:
            try:
                self._running = os.waitpid(self.pid, os.WNOHANG)[0] == 0
            except ChildProcessError:  # Somebody else has waited for it, or for all children.
                self._running = False
        return self._running

    def kill(self) -> None:
        """End it now."""
        # It may run as a user that this process has been and is no more.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, 9)

    def wait(self) -> None:
        """Wait until it has ended; if it does not, kill it."""
        deadline = time.monotonic() + _PATIENCE_S
        pause = 0.0005
        while self.is_running():
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
