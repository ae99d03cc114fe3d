"""The states of interleaved datasets one by one, for iterators that read from several interleaves.

A shard is then the datasets with the same number in all of them, and its state has theirs.
"""

from collections.abc import Sequence
from typing import Any

from wholegrain._core.types import State
from wholegrain._graph import nodes
from wholegrain._state.validate import flag_of, list_of, part_of


def sliced(parents: Sequence[Any], sl: slice, sequential: bool) -> tuple[Any, ...]:
    """Return a part of each dataset, as the workers of `mp_prefetch` read it."""
    index, count = sl.start or 0, sl.step or 1
    return tuple(nodes.share_of(parent, index, count, sequential) for parent in parents)


def interleave_of(iterator: Any) -> Any:
    """Return the iterator upstream that has the state of each dataset."""
    stage = iterator
    while not hasattr(stage, "get_shard_states"):
        if len(stage._parents) != 1:
            raise ValueError(
                "`ElasticIterator` needs an `InterleaveIterDataset` over files or datasets, to"
                f" save the state of each, but the data come from {stage}."
            )
        (stage,) = stage._parents
    return stage


def joined(iterators: Sequence[Any]) -> list[State]:
    """Return for each shard its state in all iterators, and whether it has ended in all."""
    states = [interleave_of(iterator).get_shard_states() for iterator in iterators]
    if len({len(shards) for shards in states}) > 1:
        raise ValueError("All parents must have the same number of shards.")
    return [
        {"exhausted": all(one["exhausted"] for one in shard), "state": {"parents": list(shard)}}
        for shard in zip(*states, strict=True)
    ]


def distribute(iterators: Sequence[Any], shard_states: Sequence[Any], owner: object) -> None:
    """Bring each iterator to the position at which the shards have the given states."""
    rows = []
    for shard in shard_states:
        row = list_of(part_of(shard, "state", owner), "parents", owner)
        if len(row) != len(iterators):
            raise ValueError("All parents must have the same number of shards.")
        for one in row:
            flag_of(one, "exhausted", owner)
        rows.append(row)
    for iterator, column in zip(iterators, zip(*rows, strict=True), strict=False):
        interleave_of(iterator).set_shard_states(list(column))
