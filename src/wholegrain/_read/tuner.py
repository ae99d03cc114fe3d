"""Adjusts the parameters of a pipeline while it runs, one at a time, by trying other values."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from wholegrain._core.autotune_parameter import AutotuneParameter
from wholegrain._read.hill_climb import HillClimb

_STARVED = 0.1
"""A consumer that waits for more than this share of the time may gain by other values."""

_GAIN = 1.05
"""The speed-up that a larger value needs to be kept."""

_FIRST_REST, _LONGEST_REST = 2, 256


@dataclasses.dataclass(frozen=True)
class Seen:
    """The measurements since the last decision.

    Args:
        seconds: The length of the measurement.
        waited: How many of these seconds the consumer waited for elements.
        count: How many elements the consumer received.
        cpus: How many CPUs this process has kept busy.
        nbytes: How much memory this process uses.
    """

    seconds: float
    waited: float
    count: int
    cpus: float
    nbytes: int

    @property
    def rate(self) -> float:
        """Elements per second."""
        return self.count / max(self.seconds, 1e-9)


class _Climber:
    """One parameter and how its value is being changed."""

    def __init__(self, parameter: AutotuneParameter, is_concurrency: bool) -> None:
        self.parameter = parameter
        self.is_concurrency = is_concurrency
        self.climb = HillClimb(int(parameter), first_rest=_FIRST_REST, longest_rest=_LONGEST_REST)

    @property
    def next_value(self) -> int:
        """The value that a trial would use; the present one at the upper limit."""
        value = max(1, self.climb.count)
        largest = min(value * self.parameter.trust_region_multiplier, self.parameter.max_value)
        return max(value, math.floor(largest))

    def apply(self) -> None:
        self.parameter.set_value(max(self.climb.count, self.parameter.min_value))


class Tuner:
    """Raises parameters while the consumer waits and that helps; lowers them if budgets demand it.

    Args:
        threads: Parameters that are numbers of threads.
        buffers: Parameters that are numbers of elements.
        cpu_budget: How many CPUs this process may keep busy.
        ram_budget: How many bytes of memory this process may use.
        cost: The cost of a number of threads, as a share of the present speed: a larger number is
            kept only if it gains more than it costs.
    """

    def __init__(
        self,
        threads: Sequence[AutotuneParameter],
        buffers: Sequence[AutotuneParameter],
        *,
        cpu_budget: float,
        ram_budget: float,
        cost: Callable[[float], float],
    ) -> None:
        self._climbers = [
            *(_Climber(parameter, True) for parameter in threads),
            *(_Climber(parameter, False) for parameter in buffers),
        ]
        self._cpu_budget = cpu_budget
        self._ram_budget = ram_budget
        self._cost = cost
        self._turn = 0
        self._trial: _Climber | None = None
        self._needed = _GAIN

    @property
    def parameters(self) -> list[AutotuneParameter]:
        """The parameters that it adjusts."""
        return [climber.parameter for climber in self._climbers]

    def learn(self, seen: Seen) -> None:
        """Decide about one parameter, given what was measured since the last decision."""
        for climber in self._climbers:
            climber.climb.pass_window()
        if self._trial is not None:
            self._judge(self._trial, seen)
        if seen.nbytes > self._ram_budget:
            self._lower(is_concurrency=False)
        elif seen.cpus > self._cpu_budget:
            self._lower(is_concurrency=True)
        elif seen.waited > _STARVED * seen.seconds:
            self._try_next(seen)

    def _judge(self, climber: _Climber, seen: Seen) -> None:
        self._trial = None
        climber.climb.end_trial(keep=climber.climb.has_gained(seen.rate, self._needed))
        climber.apply()

    def _lower(self, *, is_concurrency: bool) -> None:
        """Halve the largest parameter of a kind, because a budget is exceeded."""
        kind = [one for one in self._climbers if one.is_concurrency == is_concurrency]
        largest = max(kind, key=lambda one: one.climb.count, default=None)
        if largest is not None:
            smallest = math.ceil(largest.parameter.min_value)
            lower = max(smallest, largest.climb.count // 2)
            if lower < largest.climb.count:
                largest.climb.go_back(lower)
                largest.apply()

    def _try_next(self, seen: Seen) -> None:
        """Begin a trial with a larger value of the next parameter that allows one."""
        for _ in self._climbers:
            climber = self._climbers[self._turn]
            self._turn = (self._turn + 1) % len(self._climbers)
            before, value = climber.climb.count, climber.next_value
            if value > before and not climber.climb.is_resting:
                climber.climb.attempt(value, seen.rate)
                self._needed = _GAIN
                if climber.is_concurrency:
                    self._needed += self._cost(value) - self._cost(before)
                self._trial = climber
                climber.apply()
                return
