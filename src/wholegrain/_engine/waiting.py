"""Notices that elements are waited for, by looking at one of many."""

import contextlib
import time

with contextlib.suppress(ImportError):  # Not on every system.
    import resource

_FIRST = 1
_EVERY = 64


class Probe:
    """Says when to look at an element, and whether it had to be waited for.

    Example:
        >>> if probe.due():
        ...     probe.begin()
        ...     element = next(iterator)
        ...     slow = probe.waited()
    """

    __slots__ = ("_cpu", "_left", "_switches", "_wall")

    def __init__(self) -> None:
        self._left = _FIRST

    def due(self) -> bool:
        """Count an element; say whether it is one to look at."""
        self._left -= 1
        if self._left:
            return False
        self._left = _EVERY
        return True

    def begin(self) -> None:
        """Look at the clocks before the element."""
        self._switches = voluntary_switches()
        self._cpu = time.thread_time()
        self._wall = time.perf_counter()

    def waited(self) -> bool:
        """Say whether most of the time since `begin` was spent waiting."""
        wall = time.perf_counter() - self._wall
        cpu = time.thread_time() - self._cpu
        return wall > 2e-4 and cpu < 0.5 * wall and voluntary_switches() != self._switches


def queued_seconds() -> float:
    """Return how long this thread was ready to run, but others had the processors.

    On systems that do not tell, 0: then a thread on a busy machine looks like one that waits.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def voluntary_switches() -> int:
    """Count how often this thread has given up the processor to wait for something."""
    try:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (NameError, AttributeError):  # Not on this system: then only the clocks tell.
        return time.perf_counter_ns()
