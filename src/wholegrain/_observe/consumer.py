"""How long the training loop waited for data, and how long it did its own work."""

from __future__ import annotations

import time
from collections.abc import Iterable

from wholegrain._observe.times import Times
from wholegrain._read.waiting import involuntary_switches

_LONG_WAIT_S = 1e-3
"""For longer waits in a quick pipeline, check whether the thread was preempted."""

IDLE_S, IDLE_TIMES = 120.0, 30
"""A gap between two `next` calls counts as idle, not as training time, if it is longer than
`IDLE_S` and more than `IDLE_TIMES` times the longest gap so far."""


class Consumer:
    """The time of the training loop while clocks were on.

    Attributes:
        loop: Seconds of the loop's own work, between two elements.
        start: Seconds of the start-up: until the first element, and the first of each worker.
        has_started: Whether the first element was handed out.
        left_at: When the loop last got an element; 0 if unknown.
    """

    def __init__(self) -> None:
        self.loop = 0.0
        self.start = 0.0
        self.has_started = False
        self.left_at = 0.0
        # A wait is odd if the thread was preempted. The time of odd waits is not extrapolated.
        self._wait = self._odd_wait = 0.0
        self._waits = self._odd_waits = 0
        self._switches_before = 0
        self._cpu_before = 0.0  # CPU seconds of the process before the start-up ended.
        self._start_before = 0.0
        self._longest_away = 0.0
        self._workers: set[int] = set()  # Those whose first element was waited for.

    def is_first_of(self, worker: int) -> bool:
        """Return whether the loop waits for an element of a worker for the first time."""
        is_first = worker not in self._workers
        self._workers.add(worker)
        return is_first

    def entered(self, now: float) -> float:
        """Record that the loop asks for an element; return the seconds it was idle."""
        self._start_before = self.start
        if not self.left_at:
            return 0.0
        away = now - self.left_at
        if self.is_idle(away):
            return away
        self.loop += away
        self._longest_away = max(self._longest_away, away)
        return 0.0

    def left(self, now: float, seconds: float, is_quick: bool) -> bool:
        """Record that the loop got an element; return whether it was the first."""
        self.left_at = now
        if not self.has_started:
            self.start = max(self.start, self._start_before + seconds)
            return True
        waited = max(0.0, seconds - (self.start - self._start_before))
        if waited > _LONG_WAIT_S and is_quick and self._was_preempted():
            self._odd_wait += waited
            self._odd_waits += 1
        else:
            self._wait += waited
            self._waits += 1
        return False

    def _was_preempted(self) -> bool:
        """Return whether the thread was preempted since the last call of this method."""
        before, self._switches_before = self._switches_before, involuntary_switches()
        return self._switches_before != before

    def end_start_up(self, stages: Iterable[Times]) -> None:
        """Discard the times of the start-up, which are not representative of the run."""
        self.has_started = True
        self._cpu_before = time.process_time()
        for times in stages:
            times.end_start_up()
        self._wait = self._odd_wait = self.loop = 0.0
        self._waits = self._odd_waits = 0

    def is_idle(self, seconds: float) -> bool:
        """Return whether a gap is too long to be training time."""
        return seconds > IDLE_S and seconds > IDLE_TIMES * self._longest_away

    @property
    def measured_wait(self) -> float:
        """Seconds of waiting that clocks measured."""
        return self._wait + self._odd_wait

    @property
    def cpu(self) -> float:
        """CPU seconds that the process has used since the start-up."""
        return time.process_time() - self._cpu_before

    def wait(self, factor: float) -> float:
        """Return the seconds of waiting, for a run `factor` times as long as its measured part."""
        if not self._waits:
            return self._odd_wait * factor
        # Count each odd wait as an average wait, extrapolated, and add its actual time once.
        return self._wait * factor * (1 + self._odd_waits / self._waits) + self._odd_wait
