"""Notices that elements are waited for, by looking at one of many."""

import contextlib
import os
import time

from wholegrain._core.interruption import is_interruption

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

    def was_slow(self, seconds: float) -> bool:
        """Say whether that took longer than so many seconds to compute, or waited.

        If so, the next element is looked at too.
        """
        slow = time.thread_time() - self._cpu > seconds or self.waited()
        if slow:
            self._left = 1
        return slow


def queued_seconds() -> float:
    """Return how long this thread was ready to run, but others had the processors.

    On systems that do not tell, 0: then a thread on a busy machine looks like one that waits.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError) as error:
        if is_interruption(error):
            raise
        return 0.0


def queued_for_each_second() -> float:
    """Return how long this process's threads were ready to run for each second that they ran.

    On systems that do not tell, 0.
    """
    ran = queued = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            times = _schedstat(thread)
            ran, queued = ran + int(times[0]), queued + int(times[1])
    except (OSError, IndexError, ValueError) as error:
        if is_interruption(error):
            raise
        return 0.0
    return queued / max(ran, 1)


def _schedstat(thread: str) -> list[bytes]:
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb", buffering=0) as file:
            return file.read(64).split()
    except OSError as error:
        if is_interruption(error):
            raise
        return [b"0", b"0"]  # It has ended.


def voluntary_switches() -> int:
    """Count how often this thread has given up the processor to wait for something."""
    try:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (NameError, AttributeError):  # Not on this system: then only the clocks tell.
        return time.perf_counter_ns()


def involuntary_switches() -> int:
    """Count how often others were given the processor although this thread could have run on."""
    try:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    except (NameError, AttributeError):
        return 0


class ThreadTimes:
    """What a thread's clocks say, or how much they went on by.

    Args:
        wall: Seconds by the clock.
        cpu: Seconds in which the thread ran.
        queued: Seconds in which it was ready to run, but others had the processors.
        switches: How often it gave up the processor to wait for something.
    """

    __slots__ = ("cpu", "queued", "switches", "wall")

    def __init__(
        self, wall: float = 0.0, cpu: float = 0.0, queued: float = 0.0, switches: int = 0
    ) -> None:
        self.wall, self.cpu, self.queued, self.switches = wall, cpu, queued, switches

    @classmethod
    def now(cls) -> "ThreadTimes":
        """Look at the clocks of this thread, which takes some microseconds."""
        queued, switches = queued_seconds(), voluntary_switches()
        return cls(time.perf_counter(), time.thread_time(), queued, switches)

    def without(self, other: "ThreadTimes") -> "ThreadTimes":
        """Return the difference."""
        return ThreadTimes(
            self.wall - other.wall,
            self.cpu - other.cpu,
            self.queued - other.queued,
            self.switches - other.switches,
        )

    def add(self, other: "ThreadTimes") -> None:
        """Add up two amounts."""
        self.wall += other.wall
        self.cpu += other.cpu
        self.queued += other.queued
        self.switches += other.switches

    @property
    def computing_share(self) -> float:
        """The share of the time in which the thread computed instead of waiting.

        The time in which others had the processors counts as neither.
        """
        if self.switches <= 0:
            return 1.0
        return max(0.0, min(1.0, self.cpu / max(self.wall - self.queued, self.cpu, 1e-9)))
