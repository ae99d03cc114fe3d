"""Part of a dataset."""

import builtins
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import IndexT, Indices, NDArray, T
from wholegrain._core.whole_number import whole_number
from wholegrain._graph.chunks import read_singly
from wholegrain._graph.kinds import IndexTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec


class _PartMapDataset(IndexTransform[T]):
    """Elements picked from each epoch of the parent.

    Their indices in the parent grow faster than their own. In an infinite dataset, the parent
    indices of late epochs do not fit into an int64 array, so those elements are read one by one.
    """

    _parent_length: int
    _reach = 0  # How far picked indices may lie outside of an epoch.

    def _fits(self, indices: Indices) -> bool:
        if not len(self) or not len(indices):
            return True
        first, last = int(indices.min()) // len(self), int(indices.max()) // len(self)
        most = max(-first, last + 1) * self._parent_length + self._reach
        return most < 2**63

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        if self._fits(indices):
            return super().getitems(indices)
        return read_singly(self.getitem, indices.tolist(), self, indices)  # type: ignore[no-any-return]

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        return super().gather(indices) if self._fits(indices) else None


class SliceMapDataset(_PartMapDataset[T]):
    """The elements that Python slicing would pick from one epoch of the parent.

    Epoch `e` of the slice comes from epoch `e` of the parent, so what was reseeded for each
    epoch upstream stays reseeded.
    """

    checkpoint = CheckpointSpec(fixed=("start", "step"), free=("stop",))

    is_share = False
    """Whether it is a worker's shard. Error messages then use the indices of the whole dataset."""

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

    def _label(self) -> str:
        part = str(self).removeprefix(type(self).__name__)
        return f"slice{part}".replace(str(sys.maxsize), "")

    def __str__(self) -> str:
        return f"SliceMapDataset[{self._start}:{self._stop}:{self._step}]"


class IndexedMapDataset(_PartMapDataset[T]):
    """The elements at a sequence of indices, in its order, in each epoch.

    Negative indices do not count from the end: they address epochs before the first one.
    """

    checkpoint = CheckpointSpec(fixed=("indices",))

    def __init__(self, parent: MapDataset[T], indices: Any) -> None:
        super().__init__(parent)
        self._indices = _as_indices(indices)
        self._reach = max(abs(index) for index in self._indices.tolist()) if len(self) else 0
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
    return whole_number("index", index, "`slice` takes whole numbers as indices")
