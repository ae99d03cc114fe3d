"""How long the training loop waited for data, and how long it did other things."""

from __future__ import annotations

import time
from collections.abc import Iterable

from wholegrain._observe.times import Times
from wholegrain._read.waiting import involuntary_switches

_LONG_WAIT_S = 1e-3
"""Of longer waits for a quick element it is looked at whether others had the processor."""

IDLE_S, IDLE_TIMES = 120.0, 30
"""A loop that stays away so long, and so many times longer than ever, was left alone."""


class Consumer:
    """The training loop, as far as clocks were on.

    Attributes:
        loop: Seconds between two elements.
        start: Seconds until the first element, and until each worker had its first.
        has_started: Whether there was a first element.
        left_at: When the loop last got an element; 0 if that is not known.
    """

    def __init__(self) -> None:
        self.loop = 0.0
        self.start = 0.0
        self.has_started = False
        self.left_at = 0.0
        self._wait = self._odd_wait = 0.0  # Odd: others had the processor. It stands for no more.
        self._waits = self._odd_waits = 0
        self._switches_before = 0
        self._cpu_before = 0.0  # Seconds of processors that the process had used until then.
        self._start_before = 0.0
        self._longest_away = 0.0

    def entered(self, now: float) -> float:
        """Note that the loop asks for an element; return for how long it was left alone."""
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
        """Note that the loop got an element, and how long it took; say whether it is the first."""
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
        """Whether others were given the processor since this was last asked."""
        before, self._switches_before = self._switches_before, involuntary_switches()
        return self._switches_before != before

    def end_start_up(self, stages: Iterable[Times]) -> None:
        """Begin to count: opening files and the like says nothing of how it goes on."""
        self.has_started = True
        self._cpu_before = time.process_time()
        for times in stages:
            times.end_start_up()
        self._wait = self._odd_wait = self.loop = 0.0
        self._waits = self._odd_waits = 0

    def is_idle(self, seconds: float) -> bool:
        """Whether the loop has been away for so long that it does not train."""
        return seconds > IDLE_S and seconds > IDLE_TIMES * self._longest_away

    def note_wait(self, seconds: float) -> None:
        """Count seconds as waiting that will be found to have passed between two elements."""
        self._wait += seconds
        self.loop -= seconds

    @property
    def measured_wait(self) -> float:
        """Seconds of waiting under clocks."""
        return self._wait + self._odd_wait

    @property
    def cpu(self) -> float:
        """Seconds of processors that the process has used since the start-up."""
        return time.process_time() - self._cpu_before

    def wait(self, factor: float) -> float:
        """Return the seconds of waiting of a run that was `factor` times as long as was seen."""
        if not self._waits:
            return self._odd_wait * factor
        # Those in which others had the processor count as the others do, and once as they were.
        return self._wait * factor * (1 + self._odd_waits / self._waits) + self._odd_wait
