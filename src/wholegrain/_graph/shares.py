"""Shares of a pipeline: the part that each of several workers runs."""

from __future__ import annotations

import copy
from typing import Any, Generic

from wholegrain._core.types import T
from wholegrain._graph import nodes, run
from wholegrain._graph.carrier import carrying
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.nodes.slice import SliceMapDataset
from wholegrain._graph.timed import worker_output
from wholegrain._observe.tracking import set_up_worker


class Shares(Generic[T]):
    """The shares of a pipeline.

    Args:
        whole: The pipeline.
        count: How many shares there are.
        sequential: See `shard`.
    """

    def __init__(self, whole: IterDataset[T], count: int, sequential: bool) -> None:
        self.parents = (whole,)
        self.count = count
        self._sequential = sequential

    def open(self, number: int, context: run.RunContext) -> DatasetIterator[T]:
        """Open an iterator over one share in this process."""
        share = self.share(number)

        def open_it(context: run.RunContext) -> DatasetIterator[T]:
            with run.entered(context.but(worker_index=number, worker_count=self.count)):
                return share.__iter__()

        if context.account is None:
            return open_it(context)
        iterator: DatasetIterator[T] = carrying(share, context, open_it)
        return iterator

    def share(self, number: int) -> IterDataset[T]:
        """Return the pipeline restricted to one share."""
        return shard(self.parents[0], number, self.count, self._sequential)

    def open_in_worker(
        self, context: run.RunContext, number: int, count: int
    ) -> DatasetIterator[T]:
        """Open an iterator over one share in a worker process."""
        set_up_worker(number)
        iterator = self.open(number, context)
        # Reports show the output of this iterator as the stage that has workers.
        output = worker_output(iterator, context.observed, self)
        context.observed.ids.add_share(iterator.opened_from, self.parents[0])
        # A tracked run has to see each element pass.
        output.takes_chunks = context.observed.aims is None and output.takes_back
        return output


def shard(dataset: IterDataset[Any], index: int, count: int, sequential: bool) -> IterDataset[Any]:
    """Return the pipeline restricted to share `index` of `count`.

    Args:
        dataset: The whole pipeline; it is not changed.
        index: Which share.
        count: How many shares there are.
        sequential: Whether a share is a contiguous part of each source, before any shuffle,
            instead of every n-th element of each MapDataset that is read.
    """
    if count == 1:
        return dataset
    share: IterDataset[Any] = _shard(dataset, index, count, sequential)
    return share


def share_of(dataset: Any, index: int, count: int, sequential: bool = False) -> Any:
    """Return share `index` of `count`, as the workers of `mp_prefetch` read them."""
    return shard(dataset, index, count, sequential)


def _shard(dataset: Any, index: int, count: int, sequential: bool) -> Any:
    if isinstance(dataset, MapDataset):
        if sequential:
            return _contiguous(dataset, index, count)
        part = SliceMapDataset(dataset, slice(index, None, count))
        part.is_share = True
        return part
    set_slice = getattr(dataset, "set_slice", None)
    if set_slice is not None:
        share = copy.copy(dataset)
        share.set_slice(slice(index, None, count), sequential)
        return share
    if not dataset.parents:
        raise ValueError(
            "Cannot slice `IterDataset` source."
            f" {dataset} has no way to give {count} workers a share each. Use one worker, read"
            " several files with `InterleaveIterDataset`, or give your class a method"
            " `set_slice(sl, sequential_slice)`."
        )
    parents = [_shard(parent, index, count, sequential) for parent in dataset.parents]
    return dataset.with_parents(parents)


def check_can_shard(dataset: IterDataset[Any], count: int, sequential: bool) -> None:
    """Raise if the pipeline cannot be split among `count` workers."""
    if count > 1:
        _shard(dataset, 0, count, sequential)


def _contiguous(dataset: MapDataset[Any], index: int, count: int) -> MapDataset[Any]:
    """Return `dataset` over a contiguous part of each of its sources."""
    from wholegrain.sharding import ShardOptions, even_split

    sources = (nodes.SourceMapDataset, nodes.RangeMapDataset)
    if isinstance(dataset, sources) or not dataset.parents:
        start, stop = even_split(len(dataset), ShardOptions(index, count))
        return dataset.slice(slice(start, stop))
    if isinstance(dataset, nodes.DiskCacheMapDataset) and dataset.keeps_indices:
        start, stop = even_split(len(dataset), ShardOptions(index, count))
        return dataset.slice(slice(start, stop))
    part = dataset.with_parents([_contiguous(parent, index, count) for parent in dataset.parents])
    if isinstance(part, nodes.DiskCacheMapDataset):
        return part.part(f"{index} of {count}", part.parent)
    if isinstance(part, nodes.RandomMapMapDataset):
        # Each element draws the random numbers of its index in the whole pipeline.
        start, _ = even_split(len(dataset), ShardOptions(index, count))
        part.count_from(start, len(dataset))
    return part
