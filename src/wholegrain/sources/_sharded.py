"""Records of several files with consecutive numbers: the part that all formats share."""

import operator
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources._errors import out_of_range
from wholegrain.sources.protocol import RandomAccessDataSource

T = TypeVar("T")

# For fewer records, numpy's fixed costs exceed what grouping saves.
_FEW = 4
# Records per read while iterating.
_ITERATION_CHUNK = 256


def as_array(indices: Any) -> Indices:
    """Return `indices` as an array, or raise for the first that is not an integer."""
    array = np.asarray(indices)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        array = np.array([operator.index(index) for index in indices], dtype=np.int64)
    return array.astype(np.int64, copy=False)


def as_indices(indices: Any, length: int, what: str) -> Indices:
    """Return `indices` as an array, or raise for the first that is not in `range(length)`."""
    array = as_array(indices)
    if array.size and not (array.min() >= 0 and array.max() < length):
        bad = array[(array < 0) | (array >= length)][0]
        raise out_of_range(int(bad), length, what)
    return array


class ShardedDataSource(RandomAccessDataSource[T]):
    """Base class of sources whose records are in one or several files.

    A subclass defines the number of records in each file, and how to read records of a file.
    """

    _ends: list[int]  # for each file: the number of records up to its end

    def _set_counts(self, counts: Sequence[int]) -> None:
        self._ends = np.cumsum(np.asarray(counts, dtype=np.int64)).tolist()

    @abstractmethod
    def _read_one(self, file: int, position: int) -> T:
        """Return the record at `position` of a file."""

    @abstractmethod
    def _read_many(self, file: int, positions: Indices) -> Sequence[T]:
        """Return the records at sorted `positions` of a file, which may repeat."""

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, record_key: SupportsIndex) -> T:
        index = operator.index(record_key)
        ends = self._ends
        if not 0 <= index < len(self):
            raise out_of_range(index, len(self), f"`{type(self).__name__}`")
        file = bisect_right(ends, index)
        return self._read_one(file, index - ends[file - 1] if file else index)

    def _where(self, index: int) -> tuple[str | None, int]:
        """Return the file of a record, and its number there, for `Origin`."""
        file = bisect_right(self._ends, index)
        return self._path_of(file), index - self._ends[file - 1] if file else index

    def _path_of(self, file: int) -> str | None:
        files: list[str] = getattr(self, "_files", [])
        return files[file] if files else None

    def __getitems__(self, record_keys: Sequence[SupportsIndex] | Indices) -> list[T]:
        """Return the records of `record_keys`, in that order. Keys may repeat.

        Records of one file are read together, in file order.
        """
        if len(record_keys) < _FEW:
            return [self[key] for key in record_keys]
        keys = as_array(record_keys)
        order = keys.argsort(kind="stable")
        rising = keys[order]
        ends = self._ends
        if rising[0] < 0 or rising[-1] >= len(self):
            bad = rising[0] if rising[0] < 0 else rising[-1]
            raise out_of_range(int(bad), len(self), f"`{type(self).__name__}`")
        records: list[Any] = [None] * len(keys)
        slots = order.tolist()
        start = 0
        while start < len(slots):
            file = bisect_right(ends, rising[start])
            stop = len(slots)
            if ends[file] <= rising[-1]:
                stop = int(rising.searchsorted(ends[file]))
            positions = rising[start:stop]
            found = self._read_many(file, positions - ends[file - 1] if file else positions)
            for slot, record in zip(slots[start:stop], found, strict=True):
                records[slot] = record
            start = stop
        return records

    # The name of the same method in Grain's sources.
    _getitems = __getitems__

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _ITERATION_CHUNK):
            stop = min(start + _ITERATION_CHUNK, len(self))
            yield from self.__getitems__(np.arange(start, stop))
