"""Finds how many threads or workers are useful, by trying other numbers."""


class HillClimb:
    """A number that is changed on trial, and changed back if the trial does not help.

    Time is counted in windows: the caller measures for a while, and then either judges the running
    trial, or begins another one, or does neither. After each failed trial in a row, `is_resting` is
    true for twice as many windows as before.

    Args:
        count: The number to begin with.
        first_rest: For how many windows to rest after a failed trial.
        longest_rest: The longest rest.

    Attributes:
        count: How many there should be.
    """

    def __init__(self, count: int, *, first_rest: int, longest_rest: int) -> None:
        self.count = count
        self._before = 0  # The number before the running trial; 0 if none is running.
        self._rate_before = 0.0
        self._rest = 0
        self._first_rest = self._next_rest = first_rest
        self._longest_rest = longest_rest

    @property
    def trial(self) -> float:
        """The factor by which the running trial changed the number; 0 if no trial is running."""
        return self.count / self._before if self._before else 0.0

    @property
    def is_resting(self) -> bool:
        """Whether a trial failed recently."""
        return self._rest > 0

    def pass_window(self) -> None:
        """Count a window of a rest."""
        self._rest = max(0, self._rest - 1)

    def attempt(self, count: int, rate: float) -> None:
        """Begin a trial with another number. `rate` is the number of elements per second now."""
        self._before, self._rate_before = self.count, rate
        self.count = count

    def has_gained(self, rate: float, factor: float) -> bool:
        """Return whether the running trial is at least `factor` times as fast as before."""
        return rate >= factor * self._rate_before

    def end_trial(self, *, keep: bool) -> None:
        """End the running trial: keep the number, or go back and rest."""
        before, self._before = self._before, 0
        if not keep:
            self.go_back(before)
        elif self.count > before:
            self._next_rest = self._first_rest

    def go_back(self, count: int) -> None:
        """Use a smaller number because the present one does no good, and rest."""
        self._before = 0
        self.count = count
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, self._longest_rest)

    def drop_trial(self) -> None:
        """Keep the number without judging the running trial."""
        self._before = 0
