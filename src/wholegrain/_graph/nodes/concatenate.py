"""Concatenates datasets."""

import itertools
import sys
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from wholegrain._core.types import Indices, T
from wholegrain._graph.kinds import ManyParentsMapNode, several
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec


class ConcatenateMapDataset(ManyParentsMapNode[T]):
    """In each epoch, the elements of that epoch of each dataset, one dataset after the other."""

    checkpoint = CheckpointSpec(fixed=("lengths",))

    def __init__(self, datasets: Sequence[MapDataset[T]]) -> None:
        super().__init__(several("concatenate", datasets))
        self._follow_parents()

    def _follow_parents(self) -> None:
        self._lengths = [len(parent) for parent in self._parents]
        for number, length in enumerate(self._lengths):
            if length >= sys.maxsize:
                raise ValueError(
                    "`concatenate` cannot continue after an infinite dataset, but the one at"
                    f" {number} is. Concatenate first and repeat afterwards."
                )
        self._ends = list(itertools.accumulate(self._lengths))
        self._length_array = np.array(self._lengths, dtype=np.int64)
        self._end_array = np.array(self._ends, dtype=np.int64)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def locate(self, index: int) -> tuple[int, int]:
        epoch, position = divmod(index, len(self))
        component = bisect_right(self._ends, position)
        length = self._lengths[component]
        return component, position - (self._ends[component] - length) + epoch * length

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        if not len(self):
            raise ZeroDivisionError("There is nothing to concatenate: no element to read.")
        epochs, positions = np.divmod(indices, len(self))
        components = np.searchsorted(self._end_array, positions, side="right")
        lengths = self._length_array[components]
        return components, positions - (self._end_array[components] - lengths) + epochs * lengths

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return -(-stop // len(self)) * self._lengths[number] if len(self) else 0

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        found = []
        for own, length, end in zip(keys, self._lengths, self._ends, strict=True):
            epochs, positions = np.divmod(own, max(1, length))
            found.append(epochs * len(self) + end - length + positions)
        return np.concatenate(found)

    def __str__(self) -> str:
        return f"ConcatenateMapDataset[{len(self._parents)} parents]"
