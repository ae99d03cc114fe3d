"""How quickly a run goes on while nobody looks, from how quickly it went on under clocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Pace:
    """Seconds for each element that is read, as seen while there were clocks.

    Between two chunks nothing is noted. How much of the last one has been taken is known, though.
    """

    def __init__(self) -> None:
        self._position = 0
        self._taken = 0

    def switched(self, iterators: Iterable[Any], was_on: bool) -> None:
        """Note that clocks are switched on or off."""
        position = _position(iterators)
        if was_on:
            self._taken += max(0, position - self._position)
        self._position = position

    def since(self, iterators: Iterable[Any], seconds_on: float, most: float) -> float:
        """Return the seconds since clocks were switched off or a chunk was read, at most `most`."""
        taken = min(_position(iterators) - self._position, sum(map(_cursor, iterators)))
        if taken <= 0 or not self._taken:
            return 0.0
        return min(most, taken * seconds_on / self._taken)


def _position(iterators: Iterable[Any]) -> int:
    return sum(getattr(iterator, "_base", 0) + _cursor(iterator) for iterator in iterators)


def _cursor(iterator: Any) -> int:
    return getattr(iterator, "_cursor", 0) if hasattr(iterator, "_base") else 0
