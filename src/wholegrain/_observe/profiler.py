"""Worker processes in traces of the jax profiler.

With the option `enable_multiprocess_worker_profiling`, each worker serves a profiler on a port
of its own, and the main process registers that port with jax.
"""

from __future__ import annotations

import contextlib
import glob
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from wholegrain._core.config import config
from wholegrain._core.log import logger

_server: Any = None  # The server runs as long as there is a reference to it.


def serve(folder: str) -> None:
    """Serve a profiler in this worker, and write its port to a file in `folder`."""
    global _server
    try:
        import jax

        with socket.socket() as sock:
            sock.bind(("localhost", 0))
            port = sock.getsockname()[1]
        _server = jax.profiler.start_server(port)
        unfinished = os.path.join(folder, f"{os.getpid()}.port-unfinished")
        with open(unfinished, "w") as file:
            file.write(str(port))
        os.rename(unfinished, os.path.join(folder, f"{os.getpid()}.port"))
    except Exception as error:
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
        self._forget: dict[str, Callable[[], None]] = {}
        self._seen: set[str] = set()

    def look(self, folders: list[str]) -> None:
        """Register the workers that have started to serve."""
        for folder in folders:
            for path in glob.glob(os.path.join(glob.escape(folder), "*.port")):
                if path not in self._seen:
                    self._seen.add(path)
                    self._register(path)

    def _register(self, path: str) -> None:
        pid = int(os.path.basename(path).partition(".")[0])
        try:
            with open(path) as file:
                port = int(file.read())
            register = sys.modules["jax"].profiler.register_subprocess
            self._forget[path] = register(pid, port)
        except Exception as error:
            logger().warning("Worker process %d cannot be profiled: %r", pid, error)

    @property
    def count(self) -> int:
        """How many workers are registered."""
        return len(self._forget)

    def close(self) -> None:
        """Unregister all workers."""
        for forget in self._forget.values():
            with contextlib.suppress(Exception):
                forget()
        self._forget = {}

    def __del__(self) -> None:
        self.close()
