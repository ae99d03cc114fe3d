"""Later epochs of a pipeline: another order, other random numbers."""

from __future__ import annotations

import functools
import sys
from typing import Any, TypeVar

from wholegrain._core.types import IndexT, T
from wholegrain._graph.kinds import IndexTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.nodes.interleave import InterleaveIterDataset
from wholegrain._graph.nodes.limit import LimitIterDataset
from wholegrain._graph.reseeding import with_inputs, with_seed

DatasetT = TypeVar("DatasetT", bound=Any)

_ENDLESS = sys.maxsize >> 16
"""A dataset with more elements than this is infinite, or a share of one that is."""


class EpochMapDataset(IndexTransform[T]):
    """A later epoch of a MapDataset, as if it were the first.

    Shuffles and random maps upstream differ from those of other epochs, as with `repeat`.
    """

    keeps_size = True

    def __init__(self, parent: MapDataset[T], epoch: int) -> None:
        super().__init__(parent)
        self._epoch = epoch

    def parent_index(self, index: IndexT) -> IndexT:
        return index + self._epoch * len(self.parent)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return stop + self._epoch * len(self.parent)

    def __str__(self) -> str:
        return f"EpochMapDataset(epoch={self._epoch})"


def at_epoch(dataset: DatasetT, epoch: int) -> DatasetT:
    """Return the pipeline that reads a later epoch.

    Every finite MapDataset that it reads is replaced by one of its later epochs, and an infinite
    one stays as it is. Random stages of an IterDataset get another seed. That holds for interleaved
    datasets too.
    """
    ds: Any = dataset
    if not epoch or ds is None:  # An interleaved dataset may be missing.
        return dataset
    if isinstance(ds, MapDataset):
        return ds if is_endless(ds) else EpochMapDataset(ds, epoch)  # type: ignore[return-value]
    parents = getattr(ds, "parents", ())
    # A stage that interleaves the shares of workers has a parent.
    if isinstance(ds, InterleaveIterDataset) and not parents:
        return with_inputs(ds, functools.partial(at_epoch, epoch=epoch))  # type: ignore[no-any-return]
    if parents:
        ds = ds.with_parents([at_epoch(parent, epoch) for parent in parents])
    return with_seed(ds, [epoch])  # type: ignore[no-any-return]


def is_endless(dataset: Any) -> bool:
    """Return whether a pipeline is known to be infinite."""
    if isinstance(dataset, MapDataset):
        return len(dataset) >= _ENDLESS
    if isinstance(dataset, LimitIterDataset):
        return False
    if getattr(dataset, "epochs_inside", 1) is None:
        return True
    parents = getattr(dataset, "parents", ())
    if isinstance(dataset, InterleaveIterDataset) and not parents:
        inputs = dataset.datasets
        parents = inputs if isinstance(inputs, (list, tuple)) else ()
    return bool(parents) and all(map(is_endless, parents))
