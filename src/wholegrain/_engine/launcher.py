"""How worker processes come to be: forked from a clean process, or each started anew.

On Linux a `ForkLauncher` keeps a small process (`fork_server.py`) that forks workers in
milliseconds. Elsewhere, or with WHOLEGRAIN_WORKER_START=spawn, a `SpawnLauncher` starts a new
interpreter for each. Neither imports the user's main script, and neither forks this process.

Everything that takes long to import is imported where it is needed: while the fork server starts,
the main process can do the same.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from wholegrain._core.log import logger

if TYPE_CHECKING:
    import _socket as socket

    from wholegrain._engine import memory
    from wholegrain._engine.program import Program, ProgramCopy

_HIDDEN_DEVICES = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
}
_FLAGS = (
    "debug",
    "dont_write_bytecode",
    "no_user_site",
    "no_site",
    "ignore_environment",
    "verbose",
    "bytes_warning",
    "quiet",
    "isolated",
    "optimize",
    "dev_mode",
    "safe_path",
)
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

    @property
    def socket(self) -> socket.socket:
        """Return the connection."""

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


def command(code: str, *arguments: str) -> list[str]:
    """Return how to run Python code in a new interpreter, like this one.

    After the arguments comes where this process looks for modules.
    """
    return [sys.executable, *_interpreter_flags(), "-c", code, *arguments, *module_path()]


def _interpreter_flags() -> list[str]:
    given = sys.warnoptions or getattr(sys, "_xoptions", None)
    if not given and not any(getattr(sys.flags, name, 0) for name in _FLAGS):
        return []
    import subprocess  # Takes longer to import than it takes to start a process.

    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return flags


def module_path() -> list[str]:
    """Return where this process looks for modules."""
    return [str(entry) for entry in sys.path]


def _preload() -> list[str]:
    """Return what the fork server is asked to import: the modules in WHOLEGRAIN_PRELOAD.

    There are commas between them. What they do when imported has to survive a fork: they may
    start no threads, and open nothing that workers cannot share.
    """
    asked = os.environ.get("WHOLEGRAIN_PRELOAD", "")
    return [name.strip() for name in asked.split(",") if name.strip()]


def environ() -> dict[str, str]:
    """Return the environment of a process that is, or forks, workers."""
    environ = worker_environ()
    environ.setdefault("PYTHONHASHSEED", _HASH_SEED)
    # Workers share the processors: a pool of threads in each of them only gets in the way. And
    # a process to be forked should not have threads.
    if "OMP_NUM_THREADS" not in environ:
        environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return environ


_current: Launcher | None = None
_starting = threading.Lock()


def get_launcher(modules: Iterable[str] = ()) -> Launcher:
    """Return the launcher of this process; start it if there is none, or if it died.

    Args:
        modules: What the first workers need: it is imported once for all of them.
    """
    global _current
    with _starting:
        if _current is None or not _current.is_alive:
            if _current is not None:
                _current.close()
            _current = _choose(modules)
        return _current


def _choose(modules: Iterable[str]) -> Launcher:
    asked = os.environ.get("WHOLEGRAIN_WORKER_START", "auto")
    if asked not in ("auto", "fork", "spawn"):
        raise ValueError(
            f"The environment variable WHOLEGRAIN_WORKER_START is {asked!r}. It can be auto, fork"
            " or spawn."
        )
    if asked == "fork" or (asked == "auto" and sys.platform == "linux"):
        return _fork_launcher(modules)
    from wholegrain._engine.spawn_launcher import SpawnLauncher

    return SpawnLauncher()


def _fork_launcher(modules: Iterable[str]) -> Launcher:
    from wholegrain._engine.server_process import ServerProcess

    server = ServerProcess([*modules, *_preload()])
    try:
        from wholegrain._engine.fork_launcher import ForkLauncher

        return ForkLauncher(server)
    except BaseException:
        server.close()
        raise


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
