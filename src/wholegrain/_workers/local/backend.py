"""The backend for workers on this machine, forked or spawned."""

import os
import select
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wholegrain._workers.backend import Backend, WorkerHandle, WorkerSpec
from wholegrain._workers.local.launcher import get_launcher


@dataclass(frozen=True)
class LocalBackend(Backend):
    """Starts worker processes, and passes large arrays through shared memory.

    Args:
        how: "fork" forks workers from a clean process that has imported what they need; "spawn"
            starts an interpreter for each worker. Neither forks this process.
    """

    how: Literal["fork", "spawn"]

    def prepare(self, modules: Iterable[str]) -> None:
        get_launcher(self.how, modules)

    def start(self, spec: WorkerSpec) -> WorkerHandle:
        # Imported here, so that the import overlaps with the start of the fork server.
        from wholegrain._workers.local.handle import LocalHandle

        return LocalHandle(get_launcher(self.how), spec)

    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        local: Sequence[Any] = handles
        arrived = [handle for handle in local if handle.has_message]
        if arrived:
            return arrived
        if not hasattr(select, "poll"):
            return select.select(local, [], [], timeout_s)[0]
        poller = select.poll()
        by_number = {handle.fileno(): handle for handle in local}
        for number in by_number:
            poller.register(number, select.POLLIN)
        return [by_number[number] for number, _ in poller.poll(timeout_s * 1000)]


def default() -> Backend:
    """Return the backend that WHOLEGRAIN_WORKER_START names. Default: fork on Linux, else spawn."""
    asked = os.environ.get("WHOLEGRAIN_WORKER_START", "auto")
    if asked not in ("auto", "fork", "spawn"):
        raise ValueError(
            f"The environment variable WHOLEGRAIN_WORKER_START is {asked!r}. It can be auto, fork"
            " or spawn."
        )
    if asked == "fork" or (asked == "auto" and sys.platform == "linux"):
        return LocalBackend("fork")
    return LocalBackend("spawn")
