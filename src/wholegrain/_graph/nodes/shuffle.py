"""Shuffles without a buffer: the index of each element in the parent is computed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.permute import (
    shuffle_each,
    shuffle_index,
    shuffle_indices,
    unshuffle_index,
)
from wholegrain._core.types import IndexT, Indices, T
from wholegrain._core.whole_number import whole_count, whole_number
from wholegrain._graph.kinds import IndexTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.seeds import resolve_seed
from wholegrain._state.spec import CheckpointSpec


def check_seed(method: str, seed: Any) -> int:
    """Return `seed` if it fits into 32 bits; raise otherwise."""
    number = whole_number("seed", seed, f"`{method}` needs a whole number as seed")
    if not 0 <= number < 2**32:
        raise ValueError(
            f"`{method}` needs a seed from 0 to 2**32 - 1, but got seed={seed}. `ds.seed(...)`"
            " accepts larger numbers, from which the seed is then derived."
        )
    return number


class ShuffleMapDataset(IndexTransform[T]):
    """Each epoch of the parent in another random order."""

    keeps_size = True
    checkpoint = CheckpointSpec(fixed=("seed", "length"))
    is_random = True
    same_each_epoch = False

    def __init__(self, parent: MapDataset[T], seed: int | None) -> None:
        super().__init__(parent)
        self._seed = check_seed("shuffle", resolve_seed(self, seed, "shuffle"))

    def parent_index(self, index: IndexT) -> IndexT:
        length = len(self.parent)
        if isinstance(index, int):
            epoch, position = divmod(index, length)
            return shuffle_index(position, length, (self._seed + epoch) % 2**32) + epoch * length
        return _shuffle_epochs(index, length, self._seed)

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        length, found = len(self.parent), []
        for key in keys[0].tolist():
            epoch, value = divmod(key, length)
            index = unshuffle_index(value, length, (self._seed + epoch) % 2**32)
            found.append(epoch * length + index)
        return np.array(found, np.int64)

    def __str__(self) -> str:
        return "ShuffleMapDataset"


_FEW = 100
"""Below this length, `min` of a list is faster than of an array."""


def _shuffle_epochs(indices: Indices, length: int, seed: int) -> Indices:
    """Shuffle indices, each within its epoch. A chunk rarely spans more than two epochs."""
    if not length:
        raise ZeroDivisionError("The dataset is empty: there is no element to read.")
    if not len(indices):
        return indices
    values = indices.tolist() if len(indices) < _FEW else (indices.min(), indices.max())
    first, last = int(min(values)) // length, int(max(values)) // length
    if first == last:
        start = first * length
        positions = indices - start if start else indices
        shuffled = shuffle_indices(positions, length, (seed + first) % 2**32)
        return shuffled + start if start else shuffled
    epochs, positions = np.divmod(indices, length)
    shuffled = shuffle_each(positions, length, (seed + epochs) % 2**32)
    shuffled += epochs * length
    return shuffled


class WindowShuffleMapDataset(IndexTransform[T]):
    """Each window of consecutive elements in a random order.

    Each epoch starts a new window; the last window of an epoch may be smaller.

    Args:
        parent: The dataset to shuffle.
        window_size: The number of elements in a window.
        seed: The seed of the first window; each later window uses the next number.
    """

    keeps_size = True
    checkpoint = CheckpointSpec(fixed=("window_size", "seed", "length"))
    is_random = True
    same_each_epoch = False

    def __init__(self, parent: MapDataset[T], *, window_size: int, seed: int) -> None:
        super().__init__(parent)
        self._window_size = checked_window_size(window_size)
        self._seed = check_seed("WindowShuffleMapDataset", seed)

    def parent_index(self, index: IndexT) -> IndexT:
        if not isinstance(index, int):
            return self._parent_indices(index)
        length = len(self.parent)
        epoch, position = divmod(index, length)
        window, offset = divmod(position, self._window_size)
        start, size, seed = self._window(epoch, window, length)
        return shuffle_index(offset, size, seed) + start

    def _window(self, epoch: int, window: int, length: int) -> tuple[int, int, int]:
        """Return where a window starts, its size and its seed."""
        first = window * self._window_size
        number = epoch * -(-length // self._window_size) + window
        size = min(self._window_size, length - first)
        return epoch * length + first, size, (self._seed + number) % 2**32

    def _parent_indices(self, indices: Indices) -> Indices:
        length = len(self.parent)
        if not length:
            raise ZeroDivisionError("The dataset is empty: there is no element to read.")
        epochs, positions = np.divmod(indices, length)
        windows, offsets = np.divmod(positions, self._window_size)
        starts = epochs * length + windows * self._window_size
        seeds = (epochs * -(-length // self._window_size) + windows + self._seed) % 2**32
        # The last window of an epoch may be smaller.
        whole = length // self._window_size * self._window_size
        if int(positions.max(initial=0)) < whole:
            shuffled = shuffle_each(offsets, self._window_size, seeds)
            shuffled += starts
            return shuffled
        shuffled = np.empty_like(indices)
        for size, here in (
            (self._window_size, positions < whole),
            (length - whole, positions >= whole),
        ):
            shuffled[here] = shuffle_each(offsets[here], size, seeds[here]) + starts[here]
        return shuffled

    def __str__(self) -> str:
        return f"WindowShuffleMapDataset(window_size={self._window_size})"


def checked_window_size(window_size: int) -> int:
    """Return the size of a window; raise if it is not positive."""
    window_size = whole_count("window_size", window_size)
    if window_size <= 0:
        raise ValueError(
            f"A window needs room for at least one element, but got window_size={window_size}."
        )
    return window_size
