"""Detects that a thread waits instead of computing, from its clocks and context switches."""

import contextlib
import os
import time

from wholegrain._core.interruption import is_interruption

with contextlib.suppress(ImportError):  # Not on every system.
    import resource

_FIRST = 1
_EVERY = 64

_LONG_SECONDS = 1e-4
"""Shorter waits are not worth a thread."""


def queued_seconds() -> float:
    """Return for how long this thread was runnable but had no CPU.

    Returns 0 if the system does not provide it. A thread on a busy machine then seems to wait.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError) as error:
        if is_interruption(error):
            raise
        return 0.0


def queued_for_each_second() -> float:
    """Return how long this process's threads were runnable without a CPU per second of CPU time.

    Returns 0 if the system does not provide it.
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
        return [b"0", b"0"]  # The thread has ended.


def voluntary_switches() -> int:
    """Return the number of voluntary context switches of this thread."""
    try:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (NameError, AttributeError):  # Not available here: only the clocks decide.
        return time.perf_counter_ns()


def involuntary_switches() -> int:
    """Return the number of involuntary context switches of this thread."""
    try:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    except (NameError, AttributeError):
        return 0


class ThreadTimes:
    """The readings of a thread's clocks, or the difference between two readings.

    Args:
        wall: Seconds of wall time.
        cpu: Seconds of CPU time.
        queued: Seconds for which the thread was runnable but had no CPU.
        switches: The number of voluntary context switches.
    """

    __slots__ = ("cpu", "queued", "switches", "wall")

    def __init__(
        self, wall: float = 0.0, cpu: float = 0.0, queued: float = 0.0, switches: int = 0
    ) -> None:
        self.wall, self.cpu, self.queued, self.switches = wall, cpu, queued, switches

    @classmethod
    def now(cls, *, queued: bool = True) -> "ThreadTimes":
        """Read the clocks of this thread.

        That takes some microseconds, most of them for `queued`; without it, `queued` is 0.
        """
        queued_s, switches = queued_seconds() if queued else 0.0, voluntary_switches()
        cpu = time.thread_time()
        return cls(time.perf_counter(), cpu, queued_s, switches)

    def until_now(self, *, queued: bool = True) -> "ThreadTimes":
        """Return the difference between this reading and the clocks now."""
        # In the opposite order, so that reading the slow clocks is not part of the time.
        wall, cpu = time.perf_counter(), time.thread_time()
        queued_s = queued_seconds() if queued else 0.0
        return ThreadTimes(wall, cpu, queued_s, voluntary_switches()).without(self)

    def without(self, other: "ThreadTimes") -> "ThreadTimes":
        """Return the difference."""
        return ThreadTimes(
            self.wall - other.wall,
            self.cpu - other.cpu,
            self.queued - other.queued,
            self.switches - other.switches,
        )

    def add(self, other: "ThreadTimes") -> None:
        """Add another difference to this one."""
        self.wall += other.wall
        self.cpu += other.cpu
        self.queued += other.queued
        self.switches += other.switches

    @property
    def computing_share(self) -> float:
        """The share of the time for which the thread computed instead of waiting.

        Time for which it was runnable but had no CPU counts as neither.
        """
        if self.switches <= 0:
            return 1.0
        return max(0.0, min(1.0, self.cpu / max(self.wall - self.queued, self.cpu, 1e-9)))

    @property
    def waited(self) -> bool:
        """Whether most of the time was spent waiting, not computing or being preempted."""
        wall = self.wall - self.queued
        return wall > _LONG_SECONDS and self.cpu < 0.5 * wall and self.switches > 0


_NOTHING = ThreadTimes()


class Probe:
    """Decides which elements to measure, and whether a measured element had to be waited for.

    Example:
        >>> if probe.due():
        ...     probe.begin()
        ...     element = next(iterator)
        ...     slow = probe.waited()
    """

    __slots__ = ("_before", "_left")

    def __init__(self) -> None:
        self._left = _FIRST
        self._before = _NOTHING

    def due(self) -> bool:
        """Count an element; return whether to measure it."""
        self._left -= 1
        if self._left:
            return False
        self._left = _EVERY
        return True

    def begin(self) -> None:
        """Read the clocks before the element."""
        self._before = ThreadTimes.now(queued=False)

    def waited(self) -> bool:
        """Return whether most of the time since `begin` was spent waiting."""
        return self._before.until_now(queued=False).waited

    def was_slow(self, seconds: float) -> bool:
        """Return whether the element took more than `seconds` of CPU time, or waited.

        If so, the next element is measured too.
        """
        times = self._before.until_now(queued=False)
        slow = times.cpu > seconds or times.waited
        if slow:
            self._left = 1
        return slow
