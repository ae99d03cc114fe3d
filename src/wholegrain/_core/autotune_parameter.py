"""A number in the options of a pipeline that `autotune` may change while the pipeline runs."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable
from typing import Any


class AutotuneParameter:
    """A number that `experimental.autotune` adjusts; in place of an int where that is allowed.

    It is accepted by `ReadOptions`, `ThreadPrefetchIterDataset(prefetch_buffer_size=...)` and
    `InterleaveIterDataset(cycle_length=...)`. Without `autotune` it keeps its initial value.

    Args:
        name: A name for logs and metrics.
        initial_value: The value to begin with; by default the smallest.
        min_value: The smallest value; by default 1.
        max_value: The largest value; by default there is no limit but the budgets of `autotune`.
        trust_region_multiplier: By which factor one step may change the value at most.

    Example:
        >>> threads = AutotuneParameter("threads", initial_value=4, max_value=64)
        >>> ds = ds.to_iter_dataset(ReadOptions(num_threads=threads))
        >>> ds = autotune(ds)
    """

    def __init__(
        self,
        name: str,
        initial_value: float | None = None,
        min_value: float | None = None,
        max_value: float | None = None,
        trust_region_multiplier: float = 2.0,
    ) -> None:
        self.name = name
        self.id = os.urandom(8).hex()
        self.min_value = 1.0 if min_value is None else _number("min_value", min_value)
        self.max_value = math.inf if max_value is None else _number("max_value", max_value)
        if self.min_value > self.max_value:
            raise ValueError(
                f"`min_value` cannot be larger than `max_value`, but got {min_value} and"
                f" {max_value}."
            )
        if not _number("trust_region_multiplier", trust_region_multiplier) > 1:
            raise ValueError(
                "`trust_region_multiplier` has to be larger than 1, but got"
                f" {trust_region_multiplier}."
            )
        self.trust_region_multiplier = float(trust_region_multiplier)
        self._followers: list[weakref.WeakMethod[Any]] = []
        self._value = 0.0
        self.set_value(self.min_value if initial_value is None else initial_value)

    def get_value(self) -> float:
        """Return the present value."""
        return self._value

    def set_value(self, value: float, validate_value: bool = True) -> None:
        """Change the value, for running pipelines too.

        Args:
            value: The new value.
            validate_value: Whether a value outside of the range is an error.
        """
        value = _number("value", value)
        if validate_value and not self.min_value <= value <= self.max_value:
            raise ValueError(
                f"The value of {self.name!r} has to be from {self.min_value:g} to"
                f" {self.max_value:g}, but got {value:g}."
            )
        self._value = value
        for follower in self._followers:
            call = follower()
            if call is not None:
                call()

    def follow(self, method: Callable[[], None]) -> None:
        """Call a bound method after every change, as long as its object exists."""
        self._followers = [one for one in self._followers if one() is not None]
        self._followers.append(weakref.WeakMethod(method))

    def __int__(self) -> int:
        return int(self._value)

    def __float__(self) -> float:
        return self._value

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_followers": []}  # They are iterators of this process.

    def __str__(self) -> str:
        limits = self.min_value, self.max_value
        return "%s (value = %f, range = [%f, %f])" % (self.name, self._value, *limits)  # noqa: UP031

    def __repr__(self) -> str:
        return f"AutotuneParameter({self})"


def plain_int(value: Any) -> Any:
    """Return the present value of a parameter as an int, and anything else as it is."""
    return int(value) if isinstance(value, AutotuneParameter) else value


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` has to be a number, but got {value!r}.") from None
    if math.isnan(number):
        raise ValueError(f"`{name}` has to be a number, but got {value!r}.")
    return number
