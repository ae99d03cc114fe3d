"""Computes which component each position belongs to, if weights change or components end.

The positions are divided into segments. Within a segment the components are spread as in a
`Mixture`. A segment consists of whole periods of the weights, or of fewer elements than a period.
In the latter case the number of elements of each component is rounded so that the errors of all
segments do not add up.
"""

from __future__ import annotations

import bisect
import functools
import math
import sys
from collections.abc import Sequence

import numpy as np

from wholegrain._core.deficits import ONE
from wholegrain._core.mixture import Mixture
from wholegrain._core.types import Indices

Piece = tuple[int, Sequence[float]]
"""From which position on weights hold, and the weights."""


class _Segment:
    """Some consecutive positions.

    Args:
        weights: The integer weights of the components.
        counts: How many elements of each component come before it.
    """

    def __init__(self, weights: list[int], counts: list[int]) -> None:
        self._weights = weights
        self._counts = counts

    @functools.cached_property
    def _parts(self) -> tuple[Mixture, Indices, Indices]:
        # Only some segments are ever read.
        present = [component for component, weight in enumerate(self._weights) if weight]
        mixture = Mixture([self._weights[component] for component in present])
        return mixture, np.array(present, dtype=np.int64), np.array(self._counts, dtype=np.int64)

    def locate(self, position: int) -> tuple[int, int]:
        mixture, present, _ = self._parts
        number, key = mixture.locate(position)
        component = int(present[number])
        return component, self._counts[component] + key

    def locate_many(self, positions: Indices) -> tuple[Indices, Indices]:
        mixture, present, counts = self._parts
        numbers, keys = mixture.locate_many(positions)
        components = present[numbers]
        return components, counts[components] + keys

    def counts(self, position: int) -> list[int]:
        mixture, present, _ = self._parts
        counts = list(self._counts)
        for component, count in zip(present.tolist(), mixture.counts(position), strict=True):
            counts[component] += count
        return counts


class MixturePlan:
    """The components of all positions.

    Args:
        pieces: The weights, from 0 on. A weight may be 0.
        capacities: How many elements each component has; None for any number.

    Attributes:
        length: How many elements there are until all components have ended, `sys.maxsize` if they
            do not end. Then everything starts again.
    """

    def __init__(self, pieces: Sequence[Piece], capacities: Sequence[int | None]) -> None:
        self._starts: list[int] = []
        self._segments: list[_Segment] = []
        self._capacities = [0 if one is None else one for one in capacities]
        self.length = sys.maxsize
        self._counts = [0] * len(capacities)
        self._credits = [0] * len(capacities)  # In units of `1 / ONE` elements.
        position = 0
        for number, (_, weights) in enumerate(pieces):
            is_last = number + 1 == len(pieces)
            stop = sys.maxsize if is_last else pieces[number + 1][0]
            while position < stop:
                length = self._add(position, stop, weights, capacities)
                if not length:  # No component with a weight is left.
                    self.length = position
                    return
                position += length

    def _add(
        self,
        position: int,
        stop: int,
        weights: Sequence[float],
        capacities: Sequence[int | None],
    ) -> int:
        """Add a segment at `position`, and return its length: as many elements as possible."""
        rooms = [
            sys.maxsize if capacity is None else capacity - count
            for capacity, count in zip(capacities, self._counts, strict=True)
        ]
        present = [w if room else 0 for w, room in zip(weights, rooms, strict=True)]
        if not any(present):
            return 0
        whole = _integers(present)
        period = sum(whole)
        # Components with room for as many elements as there are positions do not end.
        pairs = [(w, room) for w, room in zip(whole, rooms, strict=True) if w]
        periods = min((stop - position) // period, *(room // w for w, room in pairs))
        if stop == sys.maxsize and all(room == sys.maxsize for _, room in pairs):
            length, given = sys.maxsize - position, [0] * len(whole)
        elif periods:
            length, given = periods * period, [periods * w for w in whole]
        else:
            length = min(stop - position, *(-(-room * period // w) for w, room in pairs))
            length = min(length, sum(room for _, room in pairs))
            given = whole = self._rounded(length, whole, rooms)
        self._starts.append(position)
        self._segments.append(_Segment(whole, list(self._counts)))
        self._counts = [a + b for a, b in zip(self._counts, given, strict=True)]
        return length

    def _rounded(self, length: int, weights: list[int], rooms: list[int]) -> list[int]:
        """Return how many of `length` elements each component gives."""
        period = sum(weights)
        due = [
            length * weight * ONE // period + credit if weight else 0
            for weight, credit in zip(weights, self._credits, strict=True)
        ]
        given = [min(max(one // ONE, 0), room) for one, room in zip(due, rooms, strict=True)]
        while (missing := length - sum(given)) != 0:
            step = 1 if missing > 0 else -1
            free = [
                component
                for component, weight in enumerate(weights)
                if weight and 0 <= given[component] + step <= rooms[component]
            ]
            free.sort(key=lambda one: (given[one] * ONE - due[one]) * step)
            for component in free[: abs(missing)]:
                given[component] += step
        for component, weight in enumerate(weights):
            if weight:
                self._credits[component] = due[component] - given[component] * ONE
        return given

    def _where(self, index: int) -> tuple[int, int]:
        """Return in which epoch of the plan a position is, and the position there."""
        return (0, index) if self.length == sys.maxsize else divmod(index, self.length)

    def locate(self, index: int) -> tuple[int, int]:
        """Return the component at `index`, and how many of its elements come before."""
        epoch, position = self._where(index)
        number = max(0, bisect.bisect_right(self._starts, position) - 1)
        component, key = self._segments[number].locate(position - self._starts[number])
        return component, epoch * self._capacities[component] + key

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the same for an array of indices."""
        if self.length == sys.maxsize:
            epochs, positions = np.zeros_like(indices), indices
        else:
            epochs, positions = np.divmod(indices, self.length)
        numbers = np.maximum(np.searchsorted(self._starts, positions, side="right") - 1, 0)
        components, keys = np.empty_like(indices), np.empty_like(indices)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            found = self._segments[number].locate_many(positions[here] - self._starts[number])
            components[here], keys[here] = found
        capacities = np.array(self._capacities, dtype=np.int64)
        return components, epochs * capacities[components] + keys

    def counts(self, index: int) -> list[int]:
        """Return how many elements of each component come before `index`."""
        epoch, position = self._where(index)
        number = max(0, bisect.bisect_right(self._starts, position) - 1)
        counts = self._segments[number].counts(position - self._starts[number])
        pairs = zip(counts, self._capacities, strict=True)
        return [count + epoch * capacity for count, capacity in pairs]

    def length_with(self, lengths: Sequence[int]) -> int:
        """Return how many elements there are until one is needed of a component that has ended."""
        low, high = 0, sys.maxsize >> 1  # All fit before `low`, and not all of them before `high`.
        if all(map(int.__le__, self.counts(high), lengths)):
            return sys.maxsize
        while high - low > 1:
            middle = (low + high) // 2
            if all(map(int.__le__, self.counts(middle), lengths)):
                low = middle
            else:
                high = middle
        return low


def _integers(weights: Sequence[float]) -> list[int]:
    """Return weights, some of which may be 0, as small integers in the same proportion."""
    scale = 100 / min(weight for weight in weights if weight)
    whole = [int(weight * scale) for weight in weights]
    divisor = math.gcd(*whole)
    return [weight // divisor for weight in whole]
