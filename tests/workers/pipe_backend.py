"""A backend in some tens of lines: interpreters that get pickled messages through a pipe."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from wholegrain.multiprocessing import Backend, WorkerExit, WorkerHandle, WorkerSpec

_WORK = """
import sys
from multiprocessing.connection import Connection
from wholegrain.multiprocessing import run_worker
link = Connection(int(sys.argv[1]))
run_worker(link.recv_bytes(), link.send, link.recv)
"""


class PipeBackend(Backend):
    """Starts an interpreter for each worker."""

    def start(self, spec: WorkerSpec) -> WorkerHandle:
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            process = subprocess.Popen(
                [sys.executable, "-c", _WORK, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environ,
            )
        ours.send_bytes(spec.packed())
        return PipeHandle(process, ours)

    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        by_link = {handle.link: handle for handle in handles if isinstance(handle, PipeHandle)}
        return [by_link[link] for link in wait(by_link, timeout_s)]  # type: ignore[index]


class PipeHandle(WorkerHandle):
    """One of them."""

    def __init__(self, process: subprocess.Popen[bytes], link: "Connection[Any, Any]") -> None:
        self.link = link
        self._process = process

    def send(self, message: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):
            self.link.send(message)

    def receive(self, timeout_s: float) -> tuple[Any, ...] | None:
        try:
            return self.link.recv() if self.link.poll(timeout_s) else None
        except OSError as error:
            raise EOFError from error

    def exit(self) -> WorkerExit:
        self._process.kill()
        return WorkerExit(f"exit code {self._process.wait()}")

    def close(self) -> None:
        self.link.close()
        self._process.kill()
        self._process.wait()
