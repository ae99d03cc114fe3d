"""A set of open bins: which bin takes an element, and at which offset."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from wholegrain._core import native
from wholegrain._core.types import NDArray
from wholegrain._packing.best_fit import BestFit, best_fit
from wholegrain._packing.features import Feature, PackingPlan
from wholegrain._packing.first_fit import FirstFit, first_fit


@dataclasses.dataclass(frozen=True)
class FeatureArrays:
    """The cells of one feature, for all bins. Meta features have values only."""

    feature: Feature
    values: NDArray[Any]
    segment_ids: NDArray[np.int32] | None
    positions: NDArray[np.int32] | None


class Bins(Protocol):
    """Chooses bins, tracks their free space, and writes segment ids and positions."""

    @property
    def num_open(self) -> int:
        """The number of bins that have elements. They are always the first ones."""

    def add(self, elements: list[Any], start: int, chosen: list[int] | None, /) -> int:
        """Place and copy elements from `start` on, as long as the fast path supports them.

        Returns how many were placed; call `place` for the next one. Appends their bins to `chosen`.
        """

    def place(self, lengths: tuple[int, ...], /) -> tuple[int, ...] | None:
        """Return the bin for an element, and the offset of each feature in it.

        None means that no bin has room. No length may exceed that of a bin.
        """


def make_bins(plan: PackingPlan, arrays: Sequence[FeatureArrays]) -> Bins:
    """Return empty bins over `arrays`, implemented in C if the extension is available."""
    if native.lib is None:
        return SingleFeatureBins(plan, arrays[0]) if len(arrays) == 1 else NumpyBins(plan, arrays)
    features = tuple(
        (
            array.feature.path[0] if len(array.feature.path) == 1 else None,
            array.values,
            array.segment_ids,
            array.positions,
            array.feature.alignment,
        )
        for array in arrays
    )
    limit = plan.max_sequences_per_bin or 0
    return native.lib.Bins(features, plan.num_bins, limit, plan.best_fit, np.ndarray)


class SingleFeatureBins:
    """Bins for one feature, without the extension."""

    def __init__(self, plan: PackingPlan, arrays: FeatureArrays) -> None:
        self.num_open = 0
        self._feature = arrays.feature
        self._values = _cells(arrays.values)
        self._segment_ids = _cells(arrays.segment_ids)
        self._positions = _cells(arrays.positions)
        self._limit = plan.max_sequences_per_bin
        # A bin that takes no more elements has a free space of -1: not even an empty sequence fits.
        self._room = [arrays.feature.capacity] * plan.num_bins
        self._counts = [0] * plan.num_bins
        self._finder = BestFit(self._room) if plan.best_fit else FirstFit(self._room)
        self._counting = np.arange(arrays.feature.capacity, dtype=np.int32)

    def add(self, elements: list[Any], start: int, chosen: list[int] | None, /) -> int:
        if len(self._feature.path) > 1:
            return 0
        key, capacity, place = self._feature.path[0], self._feature.capacity, self._place
        values, ndim, shape = self._values, self._values.ndim, self._values.shape[1:]
        for index in range(start, len(elements)):
            element = elements[index]
            sequence = element.get(key) if type(element) is dict else None
            if type(sequence) is not np.ndarray or sequence.ndim != ndim:
                return index - start
            length = len(sequence)
            if length > capacity or (ndim > 1 and sequence.shape[1:] != shape):
                return index - start
            bin_, offset = place(length)
            if bin_ < 0:
                return index - start
            offset += bin_ * capacity
            values[offset : offset + length] = sequence
            if chosen is not None:
                chosen.append(bin_)
        return len(elements) - start

    def place(self, lengths: tuple[int, ...], /) -> tuple[int, ...] | None:
        (length,) = lengths
        bin_, start = self._place(length)
        return None if bin_ < 0 else (bin_, start)

    def _place(self, length: int) -> tuple[int, int]:
        bin_ = self._finder.find(length)
        if bin_ < 0:
            return -1, 0
        capacity, alignment = self._feature.capacity, self._feature.alignment
        self._counts[bin_] = count = self._counts[bin_] + 1
        if bin_ == self.num_open:
            self.num_open += 1
        room = self._room[bin_]
        start = capacity - room
        if self._segment_ids is not None:
            first = bin_ * capacity + start
            last = first + length
            self._segment_ids[first:last] = count
            self._positions[first:last] = self._counting[:length]
        if count == self._limit:
            room = -1
        elif alignment == 1:
            room -= length
        else:
            room = capacity - -(-(start + length) // alignment) * alignment
        self._room[bin_] = room
        self._finder.update(bin_, room)
        return bin_, start


class NumpyBins:
    """Bins for any number of features, without the extension."""

    def __init__(self, plan: PackingPlan, arrays: Sequence[FeatureArrays]) -> None:
        self.num_open = 0
        self._arrays = arrays
        self._choose = best_fit if plan.best_fit else first_fit
        self._limit = plan.max_sequences_per_bin
        self._room = [np.full(plan.num_bins, array.feature.capacity) for array in arrays]
        self._takes_more = np.ones(plan.num_bins, np.bool_)
        self._counts = [0] * plan.num_bins
        self._fill = np.zeros(plan.num_bins, np.int64)
        capacities = [array.feature.capacity for array in arrays]
        self._counting = np.arange(max(capacities, default=0), dtype=np.int32)

    def add(self, elements: list[Any], start: int, chosen: list[int] | None, /) -> int:
        del elements, start, chosen
        return 0

    def place(self, lengths: tuple[int, ...], /) -> tuple[int, ...] | None:
        fits = self._takes_more
        for room, length in zip(self._room, lengths, strict=True):
            fits = fits & (room >= length)
        bin_ = self._choose(fits, self._fill)
        if bin_ < 0:
            return None
        self._counts[bin_] = count = self._counts[bin_] + 1
        self.num_open = max(self.num_open, bin_ + 1)
        self._takes_more[bin_] = count != self._limit
        starts = [bin_]
        for array, room, length in zip(self._arrays, self._room, lengths, strict=True):
            capacity, alignment = array.feature.capacity, array.feature.alignment
            start = capacity - int(room[bin_])
            end = start + length
            if array.segment_ids is not None and array.positions is not None:
                array.segment_ids[bin_, start:end] = count
                array.positions[bin_, start:end] = self._counting[:length]
            end = -(-end // alignment) * alignment
            room[bin_] = capacity - end
            self._fill[bin_] += end - start
            starts.append(start)
        return tuple(starts)


def _cells(array: Any) -> Any:
    """Return the cells of all bins as a one-dimensional array."""
    return None if array is None else array.reshape(-1, *array.shape[2:])
