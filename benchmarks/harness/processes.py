"""The processes that a competitor starts: their processor time and their memory."""

import os
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any


def descendants(pid: int | None = None) -> list[int]:
    """Return the children of a process (of this one), and theirs; none where /proc is missing."""
    found: list[int] = []
    for task in Path(f"/proc/{os.getpid() if pid is None else pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:  # It has ended.
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def cpu_seconds() -> float:
    """Return the processor time of this process and of all that it started, ended or not."""
    own = os.times()
    total = time.process_time() + own.children_user + own.children_system
    for pid in descendants():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def is_busy() -> bool:
    """Say whether a thread other than this one runs or is ready to: here, or in what was started.

    False where /proc is missing.
    """
    own = threading.get_native_id()
    for pid in (os.getpid(), *descendants()):
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                state = (task / "stat").read_text().rsplit(")", 1)[1].split(maxsplit=1)[0]
            except OSError:  # It has ended.
                continue
            if state in "RD" and int(task.name) != own:
                return True
    return False


def shared_out_bytes() -> int:
    """Return the memory of all processes this one started, shared pages divided among sharers."""
    total = 0
    for pid in descendants():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def allow_workers(grain: Any) -> None:
    """Let Grain start processes: they ask for flags that only `absl.app` would have parsed."""
    if grain.__name__ == "grain":
        from absl import flags  # type: ignore[import-not-found,import-untyped,unused-ignore]

        flags.FLAGS.mark_as_parsed()


def endless(iterator: Any) -> Iterator[Any]:
    """Return an iterator that goes on where the last sample stopped: workers start only once."""
    return islice(iterator, None)  # Which, unlike the iterator itself, nobody can close.
