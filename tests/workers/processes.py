"""What the tests look at from outside: processes, descriptors, scripts."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "It did not happen."
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """Say whether a process exists and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait until none of the processes runs any more."""
    pids = list(pids)
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def descendants(pid: int) -> set[int]:
    """Return the children of a process, zombies too, and theirs."""
    found: set[int] = set()
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return found  # It has ended meanwhile.
    for task in tasks:
        try:
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children = [int(child) for child in text.split()]
        for child in children:
            found |= {child, *descendants(child)}
    return found


def open_descriptors() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def run_python(
    *arguments: str, stdin: str | None = None, environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run Python in a process of its own, until all that it started have ended too."""
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(environ or {})},
    )
