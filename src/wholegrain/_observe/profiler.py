"""Worker processes in traces of the jax profiler.

With the option `enable_multiprocess_worker_profiling`, each worker serves a profiler on a port
of its own, and the main process registers that port with jax.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from wholegrain._core.config import config
from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._core.log import logger

_server: Any = None  # The server runs as long as there is a reference to it.

port: int | None = None
"""The port of the server of this process; None if there is none."""


def serve() -> None:
    """Serve a profiler in this worker. Its reports tell the port to the main process."""
    global _server, port
    try:
        import socket  # Rarely used.

        import jax

        with socket.socket() as sock:
            sock.bind(("localhost", 0))
            free = sock.getsockname()[1]
        _server = jax.profiler.start_server(free)
        port = free
    except Exception as error:
        if is_interruption(error):
            raise
        logger().warning("This worker cannot be profiled: %r", error)


def is_wanted() -> bool:
    """Return whether to profile workers: the option is set and the program has imported jax."""
    if not config.enable_multiprocess_worker_profiling:
        return False
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(getattr(jax, "profiler", None), "register_subprocess"):
        logger().warning(
            "Workers are not profiled: the program has not imported jax, or jax is too old to"
            " profile other processes."
        )
        return False
    return True


class Registry:
    """Registers the workers of a run with jax."""

    def __init__(self) -> None:
        self._forget: dict[int, Callable[[], None]] = {}
        self._seen: set[int] = set()

    def register(self, reports: Iterable[dict[str, Any]]) -> None:
        """Register the workers that have started to serve, given the reports of all workers."""
        for report in reports:
            pid, port = report["pid"], report["profiler_port"]
            if port is None or pid in self._seen:
                continue
            self._seen.add(pid)
            try:
                self._forget[pid] = sys.modules["jax"].profiler.register_subprocess(pid, port)
            except Exception as error:
                if is_interruption(error):
                    raise
                logger().warning("Worker process %d cannot be profiled: %r", pid, error)

    @property
    def count(self) -> int:
        """How many workers are registered."""
        return len(self._forget)

    def close(self) -> None:
        """Unregister all workers."""
        for forget in self._forget.values():
            with suppress_errors():
                forget()
        self._forget = {}

    def __del__(self) -> None:
        self.close()
