"""How worker processes come to be: forked from a clean process, or each started anew.

A `ForkLauncher` keeps a small process (`fork_server.py`) that forks workers in milliseconds. A
`SpawnLauncher` starts a new interpreter for each. Neither imports the user's main script, and
neither forks this process.

This module is imported when a pipeline with workers is made. What only talking to them takes is
imported where it is needed: while the fork server starts, the main process can do the same.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from wholegrain._read import shutdown
from wholegrain._workers.local.server_process import ServerProcess

if TYPE_CHECKING:
    import socket

    from wholegrain._workers.local import memory
    from wholegrain._workers.program import Program, ProgramCopy


class WorkerProcess(Protocol):
    """A process that was started, and the connection to it."""

    @property
    def socket(self) -> socket.socket:
        """Return the connection."""

    @property
    def starter_pid(self) -> int | None:
        """The process that it was asked of, if another one starts it."""

    def exit_code(self) -> int | None:
        """Return how it ended, if known; end it first if it has not."""

    def start_error(self) -> OSError | None:
        """Return why it could not be started, if it is that; end it first if it has not ended."""

    def abandon(self) -> None:
        """Take no more interest. Its socket is already closed, so it ends by itself."""


class Launcher(Protocol):
    """Starts worker processes, and gives them programs."""

    memory_kind: memory.Kind

    @property
    def is_alive(self) -> bool:
        """Whether it can start workers."""

    @property
    def is_current(self) -> bool:
        """Whether workers would run as the user and groups that this process runs as."""

    def start(self) -> WorkerProcess:
        """Start a worker. Does not wait for it."""

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        """Return where workers find `program`, and descriptors to be sent along."""

    def close(self) -> None:
        """End everything that was started. The process is about to end."""

    def disown(self) -> None:
        """Forget everything that was started: this is a forked child."""


def _preload() -> list[str]:
    """Return what the fork server is asked to import: the modules in WHOLEGRAIN_PRELOAD.

    There are commas between them. What they do when imported has to survive a fork: they may
    start no threads, and open nothing that workers cannot share.
    """
    asked = os.environ.get("WHOLEGRAIN_PRELOAD", "")
    return [name.strip() for name in asked.split(",") if name.strip()]


_current: dict[str, Launcher] = {}
_starting = threading.Lock()


def get_launcher(how: str = "fork", modules: Iterable[str] = ()) -> Launcher:
    """Return the launcher of this process; start it if there is none, or if it died.

    Args:
        how: "fork" or "spawn".
        modules: What the first workers need: it is imported once for all of them.
    """
    with _starting:
        launcher = _current.get(how)
        if launcher is not None and not launcher.is_alive:
            launcher.close()
            del _current[how]
            launcher = None
        # One for other credentials ends when its last worker does: those go on as they were.
        if launcher is None or not launcher.is_current:
            launcher = _current[how] = _start(how, modules)
        return launcher


def _start(how: str, modules: Iterable[str]) -> Launcher:
    if how == "fork":
        return _fork_launcher(modules)
    from wholegrain._workers.local.spawn_launcher import SpawnLauncher

    return SpawnLauncher()


def _fork_launcher(modules: Iterable[str]) -> Launcher:
    server = ServerProcess([*modules, *_preload()])
    try:
        from wholegrain._workers.local.fork_launcher import ForkLauncher

        return ForkLauncher(server)
    except BaseException:
        server.close()
        raise


def close_launchers() -> None:
    """End all launchers and their workers; the next worker gets a new one."""
    with _starting:
        launchers = list(_current.values())
        _current.clear()
    for launcher in launchers:
        launcher.close()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()
    for launcher in _current.values():
        launcher.disown()
    _current.clear()


def _close_at_exit() -> None:
    shutdown.exiting.set()  # First: from here on, that workers die is no news.
    close_launchers()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
