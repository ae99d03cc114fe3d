"""The CPUs and the memory that this process may use, including the limits of a container."""

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from wholegrain._core.interruption import suppress_errors

_CGROUP = Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """Return how many CPUs this process may use; at least one."""
    count = 0
    if hasattr(os, "sched_getaffinity"):
        with suppress_errors(OSError):
            count = len(os.sched_getaffinity(0))
    return max(1, min(count or os.cpu_count() or 1, _cpu_quota(_CGROUP)))


def has_gil() -> bool:
    """Return whether only one thread at a time runs Python code."""
    is_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return is_enabled()


@functools.cache  # The files are read once, because every iterator needs the result.
def _cpu_quota(root: Path) -> int:
    return min([math.ceil(quota) for quota in _cpu_quotas()], default=1 << 20)


def total_memory() -> int:
    """Return how many bytes of memory this process and its workers may use in total."""
    found = [1 << 60]
    with suppress_errors(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    files = [folder / "memory.max" for folder in _cgroups()]
    for file in [*files, _CGROUP / "memory/memory.limit_in_bytes"]:
        with suppress_errors(OSError, ValueError):
            found.append(int(file.read_text()))
    return min(found)


def available_memory() -> int:
    """Return how many bytes of memory this process and its workers can still allocate."""
    found = []
    with suppress_errors(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        found.append(int(line.split()[1]) * 1024)
    if not found:
        with suppress_errors(AttributeError, OSError, ValueError):
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    found.extend(_cgroup_memory())
    return max(0, min(found, default=1 << 30))


def private_memory(pid: int) -> int | None:
    """Return the private memory of a process in bytes, or None if it is unknown."""
    with suppress_errors(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    return None


def _cgroups() -> Iterator[Path]:
    """Yield the folders of this process's control group and of the groups that contain it."""
    own = ""
    with suppress_errors(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                own = line[3:].strip("/")
    folder = _CGROUP / own
    # In a container, the group of the container may be the visible root.
    while folder != _CGROUP:
        yield folder
        folder = folder.parent
    yield _CGROUP


def _cpu_quotas() -> Iterator[float]:
    for folder in _cgroups():
        with suppress_errors(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            yield int(quota) / int(period)
    with suppress_errors(OSError, ValueError):  # cgroups v1.
        quota = (_CGROUP / "cpu/cpu.cfs_quota_us").read_text()
        if int(quota) > 0:
            yield int(quota) / int((_CGROUP / "cpu/cpu.cfs_period_us").read_text())


def _cgroup_memory() -> Iterator[int]:
    for folder in _cgroups():
        with suppress_errors(OSError, ValueError):
            limit = int((folder / "memory.max").read_text())
            yield limit - int((folder / "memory.current").read_text()) + _reclaimable(folder)
    with suppress_errors(OSError, ValueError):
        folder = _CGROUP / "memory"
        limit = int((folder / "memory.limit_in_bytes").read_text())
        yield limit - int((folder / "memory.usage_in_bytes").read_text())


def _reclaimable(folder: Path) -> int:
    """Return how many bytes of a group's memory are page cache that can be reclaimed."""
    with suppress_errors(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            name, number = line.split()
            if name == "inactive_file":
                return int(number)
    return 0
