"""Chooses the components of a mixture so that its shares hold at every step, whatever is counted.

A component's *deficit* is how much less it has given than its share of everything given so far.
Among the components that are not ahead of their share, the one is chosen whose deficit would first
reach a whole element, of the largest size seen. No component is then ever ahead or behind by more
than one element. (The component with the largest deficit would be simpler, but with three or more
components it lets others fall further behind.)

Everything is counted in integers, so a restored mixture continues exactly.
"""

import math
from collections.abc import Sequence

ONE = 1 << 24
"""All shares together. Deficits are in units of `1 / ONE` of what is counted."""


def shares_of(weights: Sequence[float]) -> list[int]:
    """Return weights as integers with the sum `ONE`; all 0 if no weight is positive.

    A positive weight, however small, stays positive.
    """
    total = math.fsum(weights)
    if not total:
        return [0] * len(weights)
    exact = [weight / total * ONE for weight in weights]
    shares = [max(int(share), share > 0) for share in exact]
    by_size = sorted(range(len(shares)), key=lambda i: exact[i] - shares[i], reverse=True)
    missing = ONE - sum(shares)
    for component in by_size[: max(0, missing)]:
        shares[component] += 1
    shares[max(range(len(shares)), key=shares.__getitem__)] += ONE - sum(shares)
    return shares


class Deficits:
    """How far each component of a mixture is behind its share.

    Args:
        count: The number of components.

    Attributes:
        largest: The largest size of an element so far.
    """

    def __init__(self, count: int) -> None:
        self.largest = 1
        self._shares = [0] * count
        self._given = 0  # By all components since `_offsets` was computed.
        self._offsets = [0] * count  # The deficits without the part that follows from `_given`.

    def choose(self) -> int:
        """Return the next component; -1 if none has a share."""
        chosen, soonest = -1, math.inf
        given, full = self._given, self.largest * ONE
        for component, share in enumerate(self._shares):
            if share:
                deficit = self._offsets[component] + share * given
                if deficit >= 0:
                    due = (full - deficit) / share
                    if due < soonest:
                        chosen, soonest = component, due
        return chosen

    def give(self, component: int, size: int) -> None:
        """Record an element of a component."""
        self._given += size
        self._offsets[component] -= size * ONE
        if size > self.largest:
            self.largest = size

    def values(self) -> list[int]:
        """Return the deficits, in units of `1 / ONE`. Their sum is 0."""
        given = self._given
        pairs = zip(self._shares, self._offsets, strict=True)
        return [offset + share * given for share, offset in pairs]

    def set_shares(self, shares: Sequence[int]) -> None:
        """Use other shares from now on.

        The deficit of a component that has no share any more passes to the others.
        """
        values = self.values()
        left = sum(value for value, share in zip(values, shares, strict=True) if not share)
        pairs = zip(values, shares, strict=True)
        self._offsets = [value + left * share // ONE if share else 0 for value, share in pairs]
        if left and any(shares):  # What rounding has left.
            biggest = max(range(len(shares)), key=shares.__getitem__)
            self._offsets[biggest] -= sum(self._offsets)
        self._given, self._shares = 0, list(shares)

    def restore(self, values: Sequence[int], largest: int) -> None:
        """Go back to deficits that `values` returned. The shares have to be set again."""
        self._offsets, self.largest = list(values), largest
        self._given, self._shares = 0, [0] * len(values)
