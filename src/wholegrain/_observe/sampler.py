"""Decides when clocks around iterators are on, and extrapolates from the time they were on."""

from __future__ import annotations

import time

_CLOCK_S = 2e-6
"""The cost of a clock per call of a stage."""

_SHARE = 0.005
"""The share of the time that clocks may cost."""

_FEW_STEPS, _FEW_CALLS, _MANY_CALLS = 5, 16, 4096

_SLOW_S = 100e-6
"""If calls take longer than this, clocks may always be on."""

_DEEP_ONE_IN, _FIRST_STEPS, _DEEP_ONE_IN_FIRST = 64, 64, 8
"""One step in so many also measures CPU time; the first steps are measured more often."""

OFF, NOW_AND_THEN, ALWAYS = "off", "now and then", "always"


class Sampler:
    """Decides when clocks are on: always if calls are slow, else in short windows.

    A *step* is an outermost call: it passes through all stages of a thread. A *window* is an
    interval with clocks on in a quick pipeline. The interval between windows grows with their
    number.

    Args:
        always: Whether clocks are on for the whole run, as for an execution summary.

    Attributes:
        mode: `OFF`, `NOW_AND_THEN` or `ALWAYS`.
        seen: When the number of elements was last recorded.
    """

    def __init__(self, always: bool = False) -> None:
        self._always = always
        self.mode = ALWAYS if always else OFF
        self.seen = 0.0
        self._calls = self._steps = self._slow_steps = 0
        self._windows = 0
        self._since = 0.0  # When clocks were last switched on or off.
        self._on_again = 0.0
        self._seconds_on = self._seconds_off = 0.0
        self._switched_at = self._seen_at = 0  # Numbers of elements handed out.
        self._elements_on = self._elements_off = 0

    def switch(self, mode: str, now: float, count: int) -> None:
        """Change the mode. `count` elements were handed out so far."""
        if self.mode != OFF:
            self._seconds_on += now - self._since
            self._elements_on += count - self._switched_at
        elif self._since:
            self._seconds_off += now - self._since
            self._elements_off += count - self._switched_at
        self.mode = mode
        self._windows += mode == NOW_AND_THEN
        self._calls = self._steps = self._slow_steps = 0
        self._since, self._switched_at = now, count
        self.saw(now, count)

    def saw(self, now: float, count: int) -> None:
        """Record that `count` elements were handed out until `now`."""
        self.seen, self._seen_at = now, count

    def forget(self, now: float, count: int) -> None:
        """Reset the counts at the end of the start-up."""
        self._seconds_on = self._seconds_off = 0.0
        self._elements_on = self._elements_off = 0
        self._switched_at = count
        if self._since:
            self._since = now

    def skip(self, seconds: float) -> None:
        """Exclude some seconds, in which the training loop was idle."""
        if self._since:
            self._since += seconds

    def is_deep(self) -> bool:
        """Return whether to measure CPU time in the next step."""
        one_in = _DEEP_ONE_IN if self._steps >= _FIRST_STEPS else _DEEP_ONE_IN_FIRST
        return self.mode == ALWAYS and self._steps % one_in == 0

    def called(self) -> None:
        """Count a measured call."""
        self._calls += 1

    @property
    def calls(self) -> int:
        """The number of calls since clocks were switched on."""
        return self._calls

    def after_step(self, seconds: float, calls: int) -> str:
        """Record a step that made `calls` calls; return the mode to switch to.

        Steps are judged one by one, so that a single preempted step has little weight.
        """
        self._steps += 1
        self._slow_steps += seconds > _SLOW_S * calls
        if self._always or self._calls < _FEW_CALLS:
            return self.mode
        is_slow = self._slow_steps > 0.7 * self._steps
        if is_slow and self._steps < _FEW_STEPS:
            return self.mode
        if is_slow and self.mode == NOW_AND_THEN:
            return ALWAYS
        if self._calls > _MANY_CALLS:
            if is_slow:  # Reset the counts, so that a change is noticed.
                self._calls = self._steps = self._slow_steps = 0
                return ALWAYS
            return OFF
        return self.mode

    def at_pause(self, now: float) -> str:
        """Return the mode to switch to between two chunks."""
        if self.mode == OFF and now >= self._on_again:
            return NOW_AND_THEN
        return OFF if self.mode == NOW_AND_THEN and self._calls >= _FEW_CALLS else self.mode

    def rest(self, now: float, calls: int, switching: float) -> None:
        """Choose when the next window begins, after a window of `calls` calls."""
        cost = calls * _CLOCK_S + 2 * switching
        self._on_again = now + cost / _SHARE * (1 + self._windows)

    def factors(self, last: float, count: int, seen: float) -> tuple[float, float]:
        """Return the factors by which to extrapolate measured times and measured elements.

        Args:
            last: When the consumer last got an element.
            count: How many elements were handed out.
            seen: The measured seconds of the consumer. A window begins and ends in the middle of
                an element, so it is longer than the time measured in it.
        """
        on, off = self._seconds_on, self._seconds_off
        elements_on, elements_off = self._elements_on, self._elements_off
        last = max(last, self.seen, self._since)
        if self.mode != OFF:
            on += last - self._since
            elements_on += count - self._switched_at
        elif self._since:
            off += last - self._since
            elements_off += count - self._switched_at
            if elements_on:  # Assume the same speed as in the windows since the last record.
                more = max(0, count - self._seen_at) * on / elements_on
                off += min(more, time.perf_counter() - last)
        if not on or not off:
            return 1.0, 1.0
        seconds = (on + off) / (seen if 0.1 * on < seen < on else on)
        return seconds, 1 + elements_off / elements_on if elements_on else seconds
