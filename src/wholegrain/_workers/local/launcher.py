"""How worker processes are started: forked from a clean process, or spawned.

A `ForkLauncher` keeps a small process (`fork_server.py`) that forks workers in milliseconds. A
`SpawnLauncher` starts a new interpreter for each worker. Neither imports the user's main script,
and neither forks this process.

This module is imported when a pipeline with workers is built. Code for the communication with
workers is imported later, where it is needed, while the fork server starts.
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
    """A started process and the connection to it."""

    @property
    def socket(self) -> socket.socket:
        """The connection."""

    @property
    def starter_pid(self) -> int | None:
        """The process id of the fork server, if that starts the worker."""

    def exit_code(self) -> int | None:
        """Return the exit code, or None if unknown. Kill the process if it is still running."""

    def start_error(self) -> OSError | None:
        """Return the error if the start failed. Kill the process if it is still running."""

    def abandon(self) -> None:
        """Release the process. Its socket is already closed, so it exits by itself."""


class Launcher(Protocol):
    """Starts worker processes, and provides them with programs."""

    memory_kind: memory.Kind

    @property
    def is_alive(self) -> bool:
        """Whether it can start workers."""

    @property
    def is_current(self) -> bool:
        """Whether workers would have the user and group ids of this process."""

    def start(self) -> WorkerProcess:
        """Start a worker without waiting for it."""

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        """Return where workers find `program`, and descriptors to send with it."""

    def close(self) -> None:
        """End everything that was started. Called before this process exits."""

    def disown(self) -> None:
        """Forget everything that was started. Called in a forked child."""


def _preload() -> list[str]:
    """Return the modules in WHOLEGRAIN_PRELOAD, which the fork server imports.

    They are separated by commas. They have to be safe to fork after import: they may start no
    threads, and open nothing that workers cannot share.
    """
    asked = os.environ.get("WHOLEGRAIN_PRELOAD", "")
    return [name.strip() for name in asked.split(",") if name.strip()]


_current: dict[str, Launcher] = {}
_starting = threading.Lock()


def get_launcher(how: str = "fork", modules: Iterable[str] = ()) -> Launcher:
    """Return the launcher of this process; start it if there is none, or if it has died.

    Args:
        how: "fork" or "spawn".
        modules: The modules that the first workers need, imported once for all of them.
    """
    with _starting:
        launcher = _current.get(how)
        if launcher is not None and not launcher.is_alive:
            launcher.close()
            del _current[how]
            launcher = None
        # A launcher with other credentials keeps its workers and ends with the last of them.
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
    """End all launchers and their workers. The next worker gets a new launcher."""
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
    shutdown.exiting.set()  # First: workers that disappear after this are expected.
    close_launchers()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
