"""Adapts the number of reader threads to the cost of reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._read import machine
from wholegrain._read.waiting import queued_seconds, voluntary_switches

_WINDOW_SECONDS = 0.05
"""How long to measure the rate of reading before a decision about the number of threads."""

_BETTER = 1.15
"""The speed-up that more threads need to be kept."""

_WORTH = 1.05
"""The speed-up over the consumer that computing threads need to be kept."""

Read = Callable[[int, int], Sequence[Any]]


class Cost:
    """The cost of reading a chunk: elements, wall time, CPU time, voluntary context switches."""

    __slots__ = ("count", "cpu", "wall", "yields")

    def __init__(self, count: int, wall: float, cpu: float, yields: int) -> None:
        self.count, self.wall, self.cpu, self.yields = count, wall, cpu, yields

    @property
    def waited(self) -> bool:
        """Whether most of the time was spent waiting, not computing or being preempted."""
        return self.cpu < 0.5 * self.wall and self.yields > 0 and self.wall > 1e-4


class Waits:
    """Detects from several reads whether they wait for a substantial part of their time."""

    def __init__(self) -> None:
        self._count = 0
        self._cpu = self._wall = 0.0

    def see(self, cost: Cost) -> bool:
        """Record the cost of a read; return whether reads are known to wait."""
        self._count += 1
        self._cpu += cost.cpu
        self._wall += cost.wall if cost.yields else cost.cpu
        if self._count < 8 and not cost.waited:
            return False
        waits = cost.waited or self._cpu < 0.85 * self._wall
        self._count, self._cpu, self._wall = 0, 0.0, 0.0
        return waits


def timed(read: Read, start: int, stop: int, *, alone: bool) -> tuple[Sequence[Any], Cost]:
    """Read a chunk; return it with its cost.

    With `alone`, subtract the time for which the thread was runnable but had no CPU.
    """
    queued = queued_seconds() if alone else 0.0
    switches = voluntary_switches()
    cpu = time.thread_time()
    wall = time.perf_counter()
    chunk = read(start, stop)
    wall = time.perf_counter() - wall
    cpu = time.thread_time() - cpu
    if alone:
        wall = max(cpu, wall - (queued_seconds() - queued))
    return chunk, Cost(stop - start, wall, cpu, voluntary_switches() - switches)


class ReaderCount:
    """Tries other numbers of threads, and keeps those that read faster."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_computing = min(most, machine.available_cpus())
        self._windows_to_probe = 1
        self.begin(waiting=False)

    def begin(self, waiting: bool, rate_here: float = 0.0) -> None:
        """Start over, given whether reads wait and how many elements per second the consumer reads.

        `rate_here` is 0 if the consumer's rate is unknown.
        """
        self.waiting = waiting
        self._rate_here = rate_here
        self.wanted = self._most if waiting else min(1, self._most)
        self._before = 0  # The number of threads before the running try; 0 if none is running.
        self._rate_before = 0.0
        self._settled = False
        self._windows = 0
        self._windows_to_try = 0  # Until that many windows, more threads are known not to help.
        self._open_window()

    def _open_window(self) -> None:
        self._since = time.perf_counter()
        self._elements = 0
        self._chunks = 0
        self._starved = 0
        self._cpu = 0.0
        self._wall = 0.0

    def starved(self) -> None:
        """Record that the consumer had to wait."""
        self._starved += 1

    def learn(self, cost: Cost) -> str:
        """Record the cost of a chunk; return a verdict.

        The verdict is "more" if more threads are wanted, "quick" if none may be needed, "here" if
        threads are no faster than the consumer alone, and "" if nothing has to change.
        """
        self._elements += cost.count
        self._chunks += 1
        self._cpu += cost.cpu
        self._wall += cost.wall
        elapsed = time.perf_counter() - self._since
        if elapsed < _WINDOW_SECONDS or self._chunks < 2 * self.wanted:
            return ""
        self._windows += 1
        # There is nothing to gain unless the consumer has to wait.
        verdict = self._judge(elapsed) if 2 * self._starved >= self._chunks else ""
        self._open_window()
        return verdict

    def _judge(self, elapsed: float) -> str:
        rate = self._elements / elapsed
        before, self._before = self._before, 0
        if before and rate < _BETTER * self._rate_before:
            self.wanted, self.waiting, self._settled = before, False, True
            self._windows_to_try = 2 * self._windows
            return "quick"
        if self.waiting:
            # Threads that keep a CPU busy no longer wait. Check again, with exponential back-off.
            if self._cpu > 0.6 * elapsed and self._windows >= self._windows_to_probe:
                self._windows_to_probe *= 2
                self.begin(waiting=False)
                return "quick"
            return ""
        waits = self.wanted == 1 and self._cpu < 0.5 * self._wall
        if waits and self._windows >= self._windows_to_try:
            # Reads seem to wait for a source, but they may be waiting for the GIL.
            self.waiting = True
            return self._try(self._most, rate)
        if self._settled or self.wanted >= self._most_computing:
            return "here" if rate < _WORTH * self._rate_here else "quick"
        return self._try(min(2 * self.wanted, self._most_computing), rate)

    def _try(self, count: int, rate: float) -> str:
        """Use more threads until the next decision."""
        self._before, self._rate_before = self.wanted, rate
        self.wanted = count
        return "more"
