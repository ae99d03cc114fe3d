"""Which component of a mixture stands at which place.

The elements of all components are spread as evenly as integers allow: among the first `k` places,
component `j` has a number of them that only depends on `k` and the weights. The pattern repeats
after a period, so for all but the oddest weights a table of one period answers.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import Indices

_LARGEST_TABLE = 1 << 16


def integer_weights(count: int, weights: Sequence[float] | None) -> list[int]:
    """Return weights as integers in their proportion, having checked them."""
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
            f"`mix` needs positive weights, but got {weights}. Leave datasets out that should"
            " give nothing."
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
            places = np.arange(self._period)
            components, keys = self._by_counting(places)
            self._component_table, self._key_table = components, keys
            self._components, self._keys = components.tolist(), keys.tolist()
        self._counts = np.array(self._weights, dtype=np.int64)

    @property
    def pattern(self) -> list[int] | None:
        """The components of one period, after which they repeat; None if it is too long."""
        return self._components

    def component(self, index: int) -> int:
        """Return the component at `index`."""
        if self._components is None:
            return self.locate(index)[0]
        return self._components[index % self._period]

    def locate(self, index: int) -> tuple[int, int]:
        """Return the component at `index`, and how many of its elements stand before."""
        period, place = divmod(index, self._period)
        if self._components is None:
            component, key = self._by_counting_one(place)
        else:
            component, key = self._components[place], self._keys[place]
        return component, period * self._weights[component] + key

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the same for an array of indices."""
        periods, places = np.divmod(indices, self._period)
        if self._components is not None:
            components, keys = self._component_table[places], self._key_table[places]
        elif self._period < 1 << 31:
            components, keys = self._by_counting(places)
        else:
            located = [self._by_counting_one(place) for place in places.tolist()]
            components, keys = np.array(located, dtype=np.int64).reshape(-1, 2).T
        return components, periods * self._counts[components] + keys

    def _by_counting(self, places: Indices) -> tuple[Indices, Indices]:
        """Count the elements of each component before and at each place of one period."""
        components = np.full(places.shape, -1, dtype=np.int64)
        keys = np.zeros(places.shape, dtype=np.int64)
        before, behind = places, places + 1
        rest = self._period
        for component, weight in enumerate(self._weights):
            next_before = before * (rest - weight) // rest
            next_behind = behind * (rest - weight) // rest
            counted = behind - next_behind
            here = (components < 0) & (counted != before - next_before)
            components[here] = component
            keys[here] = counted[here] - 1
            before, behind, rest = next_before, next_behind, rest - weight
        return components, keys

    def _by_counting_one(self, place: int) -> tuple[int, int]:
        before, behind, rest = place, place + 1, self._period
        for component, weight in enumerate(self._weights):
            next_before = before * (rest - weight) // rest
            next_behind = behind * (rest - weight) // rest
            if behind - next_behind != before - next_before:
                return component, behind - next_behind - 1
            before, behind, rest = next_before, next_behind, rest - weight
        raise AssertionError("Every place of a mixture belongs to a component.")
