"""Part of a dataset."""

import builtins
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.failure import Failure
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

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        epochs, positions = np.divmod(keys[0], self._parent_length)
        picked, rest = np.divmod(positions - self._start, self._step)
        kept = (rest == 0) & (picked >= 0) & (picked < self._length)
        found: Indices = epochs[kept] * self._length + picked[kept]
        return found

    def _label(self) -> str:
        part = str(self).removeprefix(type(self).__name__)
        return f"slice{part}".replace(str(sys.maxsize), "")

    def __str__(self) -> str:
        return f"SliceMapDataset[{self._start}:{self._stop}:{self._step}]"


class ReindexMapDataset(_PartMapDataset[T]):
    """The elements at a sequence of indices, in its order, in each epoch.

    Negative indices do not count from the end: they address epochs before the first one. If the
    sequence is a MapDataset, it is read when elements are.
    """

    checkpoint = CheckpointSpec(fixed=("indices",))

    def __init__(self, parent: MapDataset[T], indices: Any) -> None:
        super().__init__(parent)
        self._indices = _as_indices(indices)
        self._reach = self._indices.reach
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
            return self._indices.one(int(position)) + epoch * self._parent_length
        return self._indices.many(position) + epoch * self._parent_length

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        if not len(self):
            return 0
        picked = self._indices.many(np.arange(min(stop, len(self))))
        if picked.min(initial=0) < 0:
            return None  # It reads from before the first epoch.
        return -(-stop // len(self)) * self._parent_length + int(picked.max(initial=0)) + 1

    def __str__(self) -> str:
        count = len(self._indices)
        shown = [*range(count)] if count <= 4 else [0, 1, count - 2, count - 1]
        texts = [str(self._indices.one(position)) for position in shown]
        if count > 4:
            texts.insert(2, "...")
        return f"ReindexMapDataset(indices=[{', '.join(texts)}], len={count})"


class _Indices:
    """A sequence of indices in an array.

    Attributes:
        reach: The largest absolute value.
    """

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self.reach = max(map(abs, indices.tolist()), default=0)

    def __len__(self) -> int:
        return len(self._indices)

    def one(self, position: int) -> int:
        return int(self._indices[position])

    def many(self, positions: Indices) -> Indices:
        return self._indices[positions]

    def __repr__(self) -> str:
        return repr(self._indices.tolist())


class _LazyIndices:
    """A sequence of indices that a MapDataset computes."""

    reach = 2**62  # It is not known, so only early epochs are read in chunks.

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def one(self, position: int) -> int:
        return _index(self._dataset[position])

    def many(self, positions: Indices) -> Indices:
        found = self._dataset.getitems(positions)
        for index in found:
            if type(index) is Failure:
                raise index.error
        return np.array([_index(index) for index in found], dtype=np.int64)

    def __repr__(self) -> str:
        return repr(self._dataset)


def _as_indices(indices: Any) -> _Indices | _LazyIndices:
    if isinstance(indices, MapDataset):
        return _LazyIndices(indices)
    if isinstance(indices, np.ndarray) and indices.ndim == 1 and indices.dtype.kind in "iu":
        return _Indices(indices.astype(np.int64))
    if isinstance(indices, (str, bytes)) or not isinstance(indices, Sequence | np.ndarray):
        raise TypeError(
            "`slice` takes a slice object or a sequence of indices, but got"
            f" {indices!r}. For one element use `ds[index]`."
        )
    return _Indices(np.array([_index(index) for index in indices], dtype=np.int64))


def _index(index: Any) -> int:
    return whole_number("index", index, "`slice` takes whole numbers as indices")
