"""Starts the fork server, before anything that takes time to import.

Whoever waits for the first batch waits for this process: numpy alone takes it half of that time.
What the main process needs to talk to it can be imported meanwhile.
"""

import _socket
import contextlib
import marshal
import os
import time
from collections.abc import Sequence

from wholegrain._engine import quick_import
from wholegrain._engine.interpreter import command, environ

# Before the package can be imported, the code that finds it comes through the socket. And numpy is
# not left to the package to import: Python keeps its frames in blocks of 16 KB, and gives a block
# back when it is empty. The deeper an import is nested, the more likely is it that quick calls
# cross the end of a block, and each takes memory from the system and returns it.
_SERVE = """
import gc, marshal, os, sys
gc.disable()
sys.path[:] = sys.argv[3:]
code, places = marshal.loads(os.read(0, 1 << 20) or sys.exit())
space = {"__name__": "quick_import"}
exec(code, space)
finder = space["begin"](places)
import numpy
from wholegrain._engine.fork_server import serve
serve(*sys.argv[1:3], finder)
"""
_PACKAGES = frozenset({"wholegrain", "numpy", "cloudpickle"})
# What the server imports and this process, as a rule, has not yet.
_ALSO = (
    "wholegrain._core.copying",
    "wholegrain._engine.channel",
    "wholegrain._engine.failures",
    "wholegrain._engine.fork_server",
    "wholegrain._engine.forks",
    "wholegrain._engine.layout",
    "wholegrain._engine.memory",
    "wholegrain._engine.messages",
    "wholegrain._engine.pickling",
    "wholegrain._engine.program",
    "wholegrain._engine.requests",
    "wholegrain._engine.ring",
    "wholegrain._engine.set_up",
    "wholegrain._engine.transport",
    "wholegrain._engine.worker",
    "cloudpickle",
    "cloudpickle.cloudpickle",
    "_colorize",
    "_queue",
    "_uuid",
    "linecache",
    "logging",
    "mmap",
    "resource",
    "select",
    "string",
    "traceback",
    "uuid",
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
        self.socket, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        with contextlib.closing(theirs):
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
        self._send_places(_PACKAGES.union(name.partition(".")[0] for name in preload))

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

    def _send_places(self, packages: frozenset[str]) -> None:
        """Tell the server where modules are, and with what code to load them."""
        loader = quick_import.__spec__.loader
        code = loader.get_code(quick_import.__name__)  # type: ignore[union-attr]
        places = quick_import.places(packages, _ALSO)
        # If it has ended already, whoever asks it for something will find out.
        with contextlib.suppress(ConnectionError):
            try:
                self.socket.send(marshal.dumps((code, places)), _socket.MSG_DONTWAIT)
            except OSError:  # Too long, for this system. It will find them by itself.
                self.socket.send(marshal.dumps((code, {})))
