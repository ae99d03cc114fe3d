"""Graph to graph: the share of the data that one worker runs."""

from __future__ import annotations

import copy
from typing import Any

from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.nodes.random_map import RandomMapMapDataset
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset
from wholegrain._graph.nodes.source import RangeMapDataset, SourceMapDataset
from wholegrain._graph.stretch_iterator import StretchReadIterDataset
from wholegrain.sharding import ShardOptions, even_split


def shard(dataset: IterDataset[Any], index: int, count: int, sequential: bool) -> IterDataset[Any]:
    """Return the pipeline restricted to share `index` of `count`.

    Args:
        dataset: The whole pipeline; it stays as it is.
        index: Which share.
        count: How many shares there are.
        sequential: Whether a share is a contiguous part of each source, before it is shuffled,
            instead of every n-th element of what is read.
    """
    if count == 1:
        return dataset
    share: IterDataset[Any] = _shard(dataset, index, count, sequential)
    return share


def _shard(dataset: Any, index: int, count: int, sequential: bool) -> Any:
    if isinstance(dataset, MapDataset):
        if sequential:
            return _contiguous(dataset, index, count)
        return dataset.slice(slice(index, None, count))
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


def reading_stretches(dataset: Any) -> Any:
    """Return a pipeline over one MapDataset so that it reads stretches ahead, as it is told."""
    if type(dataset) is PrefetchIterDataset:
        return StretchReadIterDataset(
            dataset.parents[0], dataset._read_options, dataset._allow_nones
        )
    return dataset.with_parents([reading_stretches(dataset.parents[0])])


def check_can_shard(dataset: IterDataset[Any], count: int, sequential: bool) -> None:
    """Raise if the pipeline cannot be dealt out to `count` workers."""
    if count > 1:
        _shard(dataset, 0, count, sequential)


def _contiguous(dataset: MapDataset[Any], index: int, count: int) -> MapDataset[Any]:
    """Return `dataset` over a contiguous part of each of its sources."""
    if isinstance(dataset, (SourceMapDataset, RangeMapDataset)) or not dataset.parents:
        start, stop = even_split(len(dataset), ShardOptions(index, count))
        return dataset.slice(slice(start, stop))
    part = dataset.with_parents([_contiguous(parent, index, count) for parent in dataset.parents])
    if isinstance(part, RandomMapMapDataset):
        # Workers draw different numbers: those of the element's place in the whole.
        start, _ = even_split(len(dataset), ShardOptions(index, count))
        part.count_from(start, len(dataset))
    return part
