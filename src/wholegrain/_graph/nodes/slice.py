"""Part of a dataset."""

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import IndexT, Indices, T
from wholegrain._graph.kinds import IndexTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.stage import Stage


class SliceMapDataset(IndexTransform[T]):
    """The elements that Python slicing would pick from one epoch of the parent.

    Epoch `e` of the slice comes from epoch `e` of the parent, so what was reseeded for each
    epoch upstream stays reseeded.
    """

    _stage = Stage(fixed=("start", "step"), free=("stop",))

    def __init__(self, parent: MapDataset[T], sl: builtins.slice) -> None:
        super().__init__(parent)
        self._slice = sl
        self._follow_parents()

    def _follow_parents(self) -> None:
        super()._follow_parents()
        self._parent_length = len(self.parent)
        start, stop, step = self._slice.indices(self._parent_length)
        self._start, self._stop, self._step = start, stop, step
        self._length = len(range(start, stop, step))

    def __len__(self) -> int:
        return self._length

    def parent_index(self, index: IndexT) -> IndexT:
        if not self._length:
            raise ZeroDivisionError(f"{self} is empty: there is no element to read.")
        epoch, position = divmod(index, self._length)
        return self._start + position * self._step + epoch * self._parent_length

    def __str__(self) -> str:
        return f"SliceMapDataset[{self._start}:{self._stop}:{self._step}]"


class IndexedMapDataset(IndexTransform[T]):
    """The elements at a sequence of indices, in its order, in each epoch.

    Negative indices do not count from the end: they address epochs before the first one.
    """

    _stage = Stage(fixed=("indices",))

    def __init__(self, parent: MapDataset[T], indices: Any) -> None:
        super().__init__(parent)
        self._indices = _as_indices(indices)
        self._follow_parents()

    def _follow_parents(self) -> None:
        super()._follow_parents()
        self._parent_length = len(self.parent)

    def __len__(self) -> int:
        return len(self._indices)

    def parent_index(self, index: IndexT) -> IndexT:
        if not len(self._indices):
            raise ZeroDivisionError("The sequence of indices is empty: no element to read.")
        epoch, position = divmod(index, len(self._indices))
        if isinstance(index, int):
            return int(self._indices[position]) + epoch * self._parent_length
        return self._indices[position] + epoch * self._parent_length

    def __str__(self) -> str:
        return f"IndexedMapDataset[{len(self._indices)} indices]"


def _as_indices(indices: Any) -> Indices:
    if isinstance(indices, MapDataset):
        indices = [_index(indices[i]) for i in range(len(indices))]
    if isinstance(indices, np.ndarray) and indices.ndim == 1 and indices.dtype.kind in "iu":
        return indices.astype(np.int64)
    if isinstance(indices, (str, bytes)) or not isinstance(indices, Sequence | np.ndarray):
        raise TypeError(
            "`slice` takes a slice object or a sequence of indices, but got"
            f" {indices!r}. For one element use `ds[index]`."
        )
    return np.array([_index(index) for index in indices], dtype=np.int64)


def _index(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(
            f"`slice` takes whole numbers as indices, but one of them is {index!r}."
        ) from None
