"""First-fit: an element goes into the first bin that has room for it."""

from collections.abc import Sequence

import numpy as np

from wholegrain._core.types import NDArray


class FirstFit:
    """Finds the first bin with room for one feature, in logarithmic time.

    A binary tree holds the largest free space of each half, quarter and so on of the bins. The
    search goes to the left child if it has enough room, and otherwise to the right.
    """

    def __init__(self, room: Sequence[int]) -> None:
        self._width = 1 << (len(room) - 1).bit_length()
        leaves = [*room, *[-1] * (self._width - len(room))]
        self._tree = [-1] * self._width + leaves
        for node in reversed(range(1, self._width)):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])

    def find(self, length: int) -> int:
        """Return the first bin with room for `length` cells, or -1."""
        tree, width = self._tree, self._width
        if tree[1] < length:
            return -1
        node = 1
        while node < width:
            node *= 2
            if tree[node] < length:
                node += 1
        return node - width

    def update(self, bin_: int, room: int) -> None:
        """Update the free space of a bin."""
        tree = self._tree
        node = self._width + bin_
        tree[node] = room
        while node > 1:
            if tree[node ^ 1] > room:
                room = tree[node ^ 1]
            node >>= 1
            if tree[node] == room:
                break
            tree[node] = room


def first_fit(fits: NDArray[np.bool_], fill: NDArray[np.int64]) -> int:
    """Return the first bin that fits, or -1.

    Args:
        fits: For each bin, whether all features of an element fit.
        fill: For each bin, the used cells. Not used here.
    """
    del fill
    bin_ = int(fits.argmax())
    return bin_ if fits[bin_] else -1
