"""Best-fit: an element goes into the fullest bin that has room for it."""

import bisect
from collections.abc import Sequence

import numpy as np

from wholegrain._core.types import NDArray


class BestFit:
    """Finds the fullest bin with room for one feature, by bisection.

    The bins are sorted by free space, and bins with the same free space by their number. Both are
    stored in one integer, which is faster to compare than a pair.
    """

    def __init__(self, room: Sequence[int]) -> None:
        self._num_bins = len(room)
        self._keys = [cells * len(room) + bin_ for bin_, cells in enumerate(room)]
        self._sorted = sorted(self._keys)

    def find(self, length: int) -> int:
        """Return the fullest bin with room for `length` cells, or -1."""
        place = bisect.bisect_left(self._sorted, length * self._num_bins)
        return self._sorted[place] % self._num_bins if place < self._num_bins else -1

    def update(self, bin_: int, room: int) -> None:
        """Update the free space of a bin."""
        key = room * self._num_bins + bin_
        del self._sorted[bisect.bisect_left(self._sorted, self._keys[bin_])]
        bisect.insort(self._sorted, key)
        self._keys[bin_] = key


def best_fit(fits: NDArray[np.bool_], fill: NDArray[np.int64]) -> int:
    """Return the fullest bin that fits, the lowest of several such, or -1.

    Args:
        fits: For each bin, whether all features of an element fit.
        fill: For each bin, the used cells, summed over all features.
    """
    bin_ = int(np.where(fits, fill, -1).argmax())
    return bin_ if fits[bin_] else -1
