"""A part of a dataset for each process, all of the same length."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from wholegrain._core.log import logger
from wholegrain._core.mask import with_mask
from wholegrain._core.types import IndexT, T
from wholegrain._graph.kinds import IndexTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec
from wholegrain.sharding import ShardOptions, check_shard_options

_ENDLESS = 2**48

Remainder = Literal["drop", "pad", "keep"]


class PaddedShardMapDataset(IndexTransform[T]):
    """Every n-th element of each epoch; the last element stands for those that are missing."""

    checkpoint = CheckpointSpec(fixed=("index", "count"))

    def __init__(self, parent: MapDataset[T], index: int, count: int) -> None:
        super().__init__(parent)
        self._index = index
        self._count = count

    def __len__(self) -> int:
        return -(-len(self.parent) // self._count)

    def parent_index(self, index: IndexT) -> IndexT:
        epoch, position = divmod(index, len(self))
        wanted: Any = self._index + position * self._count
        last = len(self.parent) - 1
        within = min(wanted, last) if type(wanted) is int else np.minimum(wanted, last)
        return within + epoch * len(self.parent)

    def is_padding(self, index: int) -> bool:
        """Return whether there is no element of this shard at `index`."""
        return self._index + index % len(self) * self._count >= len(self.parent)

    def __str__(self) -> str:
        return f"PaddedShardMapDataset({self._index} of {self._count})"


class _AddMask:
    """Adds to each element whether it is one of the shard's elements."""

    def __init__(self, shard: PaddedShardMapDataset[Any]) -> None:
        self._shard = shard

    def __call__(self, index: int, element: Any) -> Any:
        mask = np.bool_(not self._shard.is_padding(index))
        return with_mask(element, mask)


def shard_dataset(
    ds: MapDataset[Any], options: ShardOptions, remainder: Remainder
) -> MapDataset[Any]:
    """Return the part of one process; see `MapDataset.shard`."""
    check_shard_options(options)
    if remainder not in ("drop", "pad", "keep"):
        raise ValueError(f'`remainder` has to be "drop", "pad" or "keep", but got {remainder!r}.')
    index, count, length = options.shard_index, options.shard_count, len(ds)
    rest = length % count
    is_endless = length >= _ENDLESS
    if remainder == "keep" or (remainder == "drop" and is_endless):
        return ds[index::count]
    if ds.sparse and not is_endless:
        raise ValueError(
            "After a `filter` or a flat map, shards of the same length have different numbers of"
            ' elements. Shard before it with remainder="keep", or use an `ElasticIterator` with'
            ' lanes and steps="count".'
        )
    if remainder == "pad":
        padded: PaddedShardMapDataset[Any] = PaddedShardMapDataset(ds, index, count)
        return padded.map_with_index(_AddMask(padded))
    if rest:
        logger().warning(
            "%d of %d elements are dropped in each epoch, because %d shards cannot have the same"
            ' number of them otherwise. remainder="pad" drops none.',
            rest,
            length,
            count,
        )
        ds = ds[: length - rest]
    return ds[index::count]
