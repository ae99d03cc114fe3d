"""Computes which component of a mixture each position belongs to.

The elements of the components are spread as evenly as integers allow: the number of elements of
component `j` among the first `k` depends only on `k` and the weights. The pattern repeats after a
period, so except for unusual weights a table of one period is enough.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import Indices

_LARGEST_TABLE = 1 << 16


def integer_weights(count: int, weights: Sequence[float] | None) -> list[int]:
    """Check weights, and return them as integers in the same proportion."""
    if not count:
        raise ValueError("`mix` needs at least one dataset, but got none.")
    if weights is None:
        return [1] * count
    weights = list(weights)
    if len(weights) != count:
        raise ValueError(
            f"`mix` needs one weight for each dataset, but got {len(weights)} weights for"
            f" {count} datasets."
        )
    given: list[Any] = weights
    if any(isinstance(w, str) or not hasattr(w, "__float__") for w in given):
        raise TypeError(f"`mix` needs numbers as weights, but got {weights}.")
    if not all(0 < weight < math.inf for weight in weights):
        raise ValueError(
            f"`mix` needs positive weights, but got {weights}. Leave out datasets that should"
            " yield nothing."
        )
    scale = 100 / min(weights)
    return [int(weight * scale) for weight in weights]


class Mixture:
    """The pattern of a mixture with integer weights."""

    def __init__(self, weights: Sequence[int]) -> None:
        divisor = math.gcd(*weights)
        self._weights = [weight // divisor for weight in weights]
        self._period = sum(self._weights)
        self._components: list[int] | None = None
        if self._period <= _LARGEST_TABLE:
            positions = np.arange(self._period)
            components, keys = self._by_counting(positions)
            self._component_table, self._key_table = components, keys
            self._components, self._keys = components.tolist(), keys.tolist()
        self._counts = np.array(self._weights, dtype=np.int64)

    @property
    def pattern(self) -> list[int] | None:
        """The components of one period; None if the period is too long for a table."""
        return self._components

    def component(self, index: int) -> int:
        """Return the component at `index`."""
        if self._components is None:
            return self.locate(index)[0]
        return self._components[index % self._period]

    def locate(self, index: int) -> tuple[int, int]:
        """Return the component at `index`, and how many of its elements come before."""
        period, position = divmod(index, self._period)
        if self._components is None:
            component, key = self._by_counting_one(position)
        else:
            component, key = self._components[position], self._keys[position]
        return component, period * self._weights[component] + key

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the same for an array of indices."""
        periods, positions = np.divmod(indices, self._period)
        if self._components is not None:
            components, keys = self._component_table[positions], self._key_table[positions]
        elif self._period < 1 << 31:
            components, keys = self._by_counting(positions)
        else:
            located = [self._by_counting_one(position) for position in positions.tolist()]
            components, keys = np.array(located, dtype=np.int64).reshape(-1, 2).T
        return components, periods * self._counts[components] + keys

    def counts(self, index: int) -> list[int]:
        """Return how many elements of each component come before `index`."""
        period, position = divmod(index, self._period)
        counts, rest = [], self._period
        for weight in self._weights:
            left = position * (rest - weight) // rest
            counts.append(period * weight + position - left)
            position, rest = left, rest - weight
        return counts

    def reach(self, component: int, stop: int) -> int:
        """Return a number of elements of a component that contains all before position `stop`."""
        return -(-stop // self._period) * self._weights[component]

    def positions_of(self, component: int, keys: Indices, stop: int) -> Indices:
        """Return the positions of elements of a component; only those before `stop` are sure."""
        weight = self._weights[component]
        if self._components is not None:
            places = np.flatnonzero(self._component_table == component)
            # The elements of a component are in order, so the place of one is known by its number.
            return keys // weight * self._period + places[keys % weight]
        found = [self._position_of(component, key) for key in keys.tolist()]
        return np.array(found, np.int64)

    def _position_of(self, component: int, key: int) -> int:
        """Return the position of an element: the last with no more than `key` of them before it."""
        low, high = 0, (key // self._weights[component] + 1) * self._period
        while high - low > 1:
            middle = (low + high) // 2
            if self._count_before(component, middle) <= key:
                low = middle
            else:
                high = middle
        return low

    def _count_before(self, component: int, position: int) -> int:
        periods, before = divmod(position, self._period)
        rest = self._period
        for weight in self._weights[:component]:
            before, rest = before * (rest - weight) // rest, rest - weight
        weight = self._weights[component]
        return periods * weight + before - before * (rest - weight) // rest

    def _by_counting(self, positions: Indices) -> tuple[Indices, Indices]:
        """Count the elements of each component before and at each position of one period."""
        components = np.full(positions.shape, -1, dtype=np.int64)
        keys = np.zeros(positions.shape, dtype=np.int64)
        before, after = positions, positions + 1
        rest = self._period
        for component, weight in enumerate(self._weights):
            next_before = before * (rest - weight) // rest
            next_after = after * (rest - weight) // rest
            counted = after - next_after
            here = (components < 0) & (counted != before - next_before)
            components[here] = component
            keys[here] = counted[here] - 1
            before, after, rest = next_before, next_after, rest - weight
        return components, keys

    def _by_counting_one(self, position: int) -> tuple[int, int]:
        before, after, rest = position, position + 1, self._period
        for component, weight in enumerate(self._weights):
            next_before = before * (rest - weight) // rest
            next_after = after * (rest - weight) // rest
            if after - next_after != before - next_before:
                return component, after - next_after - 1
            before, after, rest = next_before, next_after, rest - weight
        raise AssertionError("Every position of a mixture belongs to a component.")
