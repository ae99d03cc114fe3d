"""Sources that need no file: numbers in a range, and values in shared memory."""

import operator
from collections.abc import Iterator, Sequence
from typing import SupportsIndex

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources._errors import BadRangeError, NotAnIndexError, out_of_range
from wholegrain.sources._sharded import as_indices
from wholegrain.sources._shareable import SharedMemoryDataSource as SharedMemoryDataSource
from wholegrain.sources.protocol import RandomAccessDataSource


class RangeDataSource(RandomAccessDataSource[int]):
    """The numbers of `range(start, stop, step)`.

    Example:
        >>> list(RangeDataSource(start=2, stop=10, step=3))
        [2, 5, 8]
    """

    def __init__(self, start: int, stop: int, step: int) -> None:
        if step == 0:
            raise BadRangeError("`step` cannot be 0; pass the distance between two numbers.")
        if -((start - stop) // step) < 0:  # the length, rounded up
            raise BadRangeError(
                f"A range from {start} to {stop} needs a {'negative' if step > 0 else 'positive'}"
                f" step, but got step={step}."
            )
        self._start = start
        self._stop = stop
        self._step = step
        self._numbers = range(start, stop, step)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, record_key: SupportsIndex) -> int:
        try:
            index = operator.index(record_key)
        except TypeError:
            raise NotAnIndexError(
                f"The index of a record has to be an integer, but got {record_key!r} of type"
                f" {type(record_key).__name__}."
            ) from None
        if not 0 <= index < len(self._numbers):
            raise out_of_range(index, len(self._numbers), repr(self))
        return self._numbers[index]

    def __getitems__(self, record_keys: Sequence[SupportsIndex] | Indices) -> list[int]:
        """Return the numbers at `record_keys`, in that order."""
        indices = as_indices(record_keys, len(self._numbers), repr(self))
        if min(self._start, self._stop) > -(2**62) and max(self._start, self._stop) < 2**62:
            numbers: list[int] = (self._start + indices * np.int64(self._step)).tolist()
            return numbers
        return [self._numbers[index] for index in indices.tolist()]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __repr__(self) -> str:
        return f"RangeDataSource(start={self._start}, stop={self._stop}, step={self._step})"
