"""Adapts the number of reader threads to the cost of reading."""

import time

from wholegrain._read import machine
from wholegrain._read.cost import Cost
from wholegrain._read.hill_climb import HillClimb

_WINDOW_SECONDS = 0.05
"""How long to measure the rate of reading before a decision about the number of threads."""

_BETTER = 1.15
"""The speed-up that more threads need to be kept."""

_WORTH = 1.05
"""The speed-up over the consumer that computing threads need to be kept."""

_FIRST_REST, _LONGEST_REST = 2, 512


class _Window:
    """What was measured since the last decision.

    Attributes:
        elements: How many elements the threads read.
        chunks: How many chunks.
        starved: How often the consumer had to wait.
        cpu: Seconds of CPU time of all threads.
        wall: Seconds of wall time, added up over the threads.
    """

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.elements = self.chunks = self.starved = 0
        self.cpu = self.wall = 0.0

    def add(self, cost: Cost) -> None:
        self.elements += cost.count
        self.chunks += 1
        self.cpu += cost.cpu
        self.wall += cost.wall

    @property
    def seconds(self) -> float:
        """The length of the measurement."""
        return time.perf_counter() - self._since


class ReaderCount:
    """Tries other numbers of threads, and keeps those that read faster.

    Args:
        most: The largest number of threads.

    Attributes:
        waiting: Whether reads are known to wait, so that all threads are useful.
        most_computing: The largest number of threads for reads that compute.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.most_computing = min(most, machine.available_cpus())
        self._windows_to_probe = 1
        self.begin(waiting=False)

    def begin(self, waiting: bool, rate_here: float = 0.0) -> None:
        """Start over, given whether reads wait and how many elements per second the consumer reads.

        `rate_here` is 0 if the consumer's rate is unknown.
        """
        self.waiting = waiting
        self._rate_here = rate_here
        # Without the GIL, threads compute at the same time.
        self._first = min(1, self._most) if machine.has_gil() else self.most_computing
        count = self._most if waiting else self._first
        self._climb = HillClimb(count, first_rest=_FIRST_REST, longest_rest=_LONGEST_REST)
        self._settled = False  # Whether a trial with more computing threads has failed.
        self._windows = 0
        self._window = _Window()

    def set_most(self, most: int) -> None:
        """Change the largest number of threads."""
        self._most = most
        self.most_computing = min(most, machine.available_cpus())
        count = most if self.waiting else min(self.wanted, self.most_computing)
        if count != self.wanted:
            self._climb.drop_trial()
            self._climb.count = count

    @property
    def wanted(self) -> int:
        """How many threads there should be."""
        return self._climb.count

    def starved(self) -> None:
        """Record that the consumer had to wait."""
        self._window.starved += 1

    def learn(self, cost: Cost) -> str:
        """Record the cost of a chunk; return a verdict.

        The verdict is "more" if more threads are wanted, "quick" if none may be needed, "here" if
        threads are no faster than the consumer alone, and "" if nothing has to change.
        """
        window = self._window
        window.add(cost)
        seconds = window.seconds
        if seconds < _WINDOW_SECONDS or window.chunks < 2 * self.wanted:
            return ""
        self._windows += 1
        self._climb.pass_window()
        # There is nothing to gain unless the consumer has to wait.
        verdict = self._judge(window, seconds) if 2 * window.starved >= window.chunks else ""
        self._window = _Window()
        return verdict

    def _judge(self, window: _Window, seconds: float) -> str:
        rate = window.elements / seconds
        if self._climb.trial:
            keep = self._climb.has_gained(rate, _BETTER)
            self._climb.end_trial(keep=keep)
            if not keep:
                self.waiting, self._settled = False, True
                return "quick"
        if self.waiting:
            # Threads that keep a CPU busy no longer wait. Check again, with exponential back-off.
            if window.cpu > 0.6 * seconds and self._windows >= self._windows_to_probe:
                self._windows_to_probe *= 2
                self.begin(waiting=False)
                return "quick"
            return ""
        waits = self.wanted == self._first and window.cpu < 0.5 * window.wall
        if waits and not self._climb.is_resting:
            # Reads seem to wait for a source, but they may be waiting for the GIL.
            self.waiting = True
            return self._try(self._most, rate)
        if self._settled or self.wanted >= self.most_computing:
            return "here" if rate < _WORTH * self._rate_here else "quick"
        return self._try(min(2 * self.wanted, self.most_computing), rate)

    def _try(self, count: int, rate: float) -> str:
        """Use more threads until the next decision."""
        self._climb.attempt(count, rate)
        return "more"
