"""When there are clocks around the stages of the iterators, and what share of a run they saw."""

from __future__ import annotations

import time

_CLOCK_S = 2e-6
"""What a clock around a stage costs for each call."""

_SHARE = 0.005
"""Which share of the time clocks may cost."""

_FEW_STEPS, _FEW_CALLS, _MANY_CALLS = 5, 16, 4096

_SLOW_S = 100e-6
"""Where a call takes so long, there may always be a clock around it."""

_DEEP_ONE_IN, _FIRST_STEPS, _DEEP_ONE_IN_FIRST = 64, 64, 8
"""Of so many steps one tells how much of the time a processor was busy; of the first ones more."""

OFF, NOW_AND_THEN, ALWAYS = "off", "now and then", "always"


class Sampler:
    """Decides when clocks are on: all the time if calls take long, else for some of them.

    A *window* is a time with clocks on in a quick pipeline. The more windows there were, the longer
    it takes until the next.

    Args:
        always: Whether clocks are always on, as for an execution summary.

    Attributes:
        mode: Off, now and then, or always.
        seen: When it was last known how far the run is.
    """

    def __init__(self, always: bool = False) -> None:
        self._always = always
        self.mode = ALWAYS if always else OFF
        self.seen = 0.0
        self._calls = self._steps = self._slow_steps = 0
        self._windows = 0
        self._since = 0.0  # When they were last switched on or off.
        self._on_again = 0.0
        self._seconds_on = self._seconds_off = 0.0
        self._switched_at = self._seen_at = 0  # After so many elements.
        self._elements_on = self._elements_off = 0

    def switch(self, mode: str, now: float, count: int) -> None:
        """Change the mode; `count` elements were handed out so far."""
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
        """Note how far the run is."""
        self.seen, self._seen_at = now, count

    def forget(self, now: float, count: int) -> None:
        """Begin again to count: the start-up is over."""
        self._seconds_on = self._seconds_off = 0.0
        self._elements_on = self._elements_off = 0
        self._switched_at = count
        if self._since:
            self._since = now

    def skip(self, seconds: float) -> None:
        """Go on as if some time had not been."""
        if self._since:
            self._since += seconds

    def is_deep(self) -> bool:
        """Whether all clocks of the thread are to be looked at in the next step."""
        one_in = _DEEP_ONE_IN if self._steps >= _FIRST_STEPS else _DEEP_ONE_IN_FIRST
        return self.mode == ALWAYS and self._steps % one_in == 0

    def called(self) -> None:
        """Note a call under clocks."""
        self._calls += 1

    @property
    def calls(self) -> int:
        """How many calls there were since clocks were switched on."""
        return self._calls

    def after_step(self, seconds: float, calls: int) -> str:
        """Note a step of a thread through the stages, of so many calls; return the mode to be in.

        Steps are looked at one by one: one in which others had the processor says nothing.
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
            if is_slow:  # Begin to count anew, so that a change is noticed.
                self._calls = self._steps = self._slow_steps = 0
                return ALWAYS
            return OFF
        return self.mode

    def at_pause(self, now: float) -> str:
        """Return the mode to be in, between two chunks."""
        if self.mode == OFF and now >= self._on_again:
            return NOW_AND_THEN
        return OFF if self.mode == NOW_AND_THEN and self._calls >= _FEW_CALLS else self.mode

    def rest(self, now: float, calls: int, switching: float) -> None:
        """Choose when the next window begins, after one of so many calls."""
        cost = calls * _CLOCK_S + 2 * switching
        self._on_again = now + cost / _SHARE * (1 + self._windows)

    def factors(self, last: float, count: int, seen: float) -> tuple[float, float]:
        """Return how many times as much time, and as many elements, there were as clocks saw.

        Args:
            last: When the consumer was last seen.
            count: How many elements it has had.
            seen: How many of its seconds clocks saw. A window begins and ends in the middle of an
                element, so it is longer than what was seen in it.
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
            if elements_on:  # Since then it went on as quickly as under clocks.
                more = max(0, count - self._seen_at) * on / elements_on
                off += min(more, time.perf_counter() - last)
        if not on or not off:
            return 1.0, 1.0
        seconds = (on + off) / (seen if 0.1 * on < seen < on else on)
        return seconds, 1 + elements_off / elements_on if elements_on else seconds
