"""Which of the processes of a distributed program this is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from wholegrain._state import state_dicts
from wholegrain.sharding import ShardOptions


@dataclass(frozen=True, init=False)
class ShardByRank(ShardOptions):
    """The shard of this rank, from `torch.distributed`.

    Before `init_process_group`, it is read from the environment variables `RANK` and `WORLD_SIZE`,
    which `torchrun` sets. In a program with one process it is all of the data.

    Args:
        drop_remainder: Whether to drop the last few records, so that all shards have the same
            number of records.
        group: The processes that share the data, if these are not all. For example, it is
            `mesh["dp"].get_group()` if the processes of a tensor-parallel group read the same data.

    Example:
        >>> shard = ShardByRank()
        >>> ds = ds[shard.shard_index :: shard.shard_count]
    """

    def __init__(self, drop_remainder: bool = False, *, group: Any = None) -> None:
        index, count = rank_and_world(group)
        super().__init__(shard_index=index, shard_count=count, drop_remainder=drop_remainder)


def rank_and_world(group: Any = None) -> tuple[int, int]:
    """Return the rank of this process, and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        rank = dist.get_rank(group)
        if rank < 0:
            raise ValueError(
                "This process does not belong to the group, so it has no shard of its data."
            )
        return rank, dist.get_world_size(group)
    if group is not None:
        raise ValueError("A group needs `torch.distributed.init_process_group()` first.")
    rank_text, world_text = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank_text is None and world_text is None:
        return 0, 1
    try:
        rank, world = int(rank_text or ""), int(world_text or "")
    except ValueError:
        rank, world = -1, -1
    if not 0 <= rank < world:
        raise ValueError(
            "The environment variables RANK and WORLD_SIZE have to be numbers with 0 <= RANK <"
            f" WORLD_SIZE, but got RANK={rank_text!r} and WORLD_SIZE={world_text!r}. Start the"
            " program with `torchrun`, or unset both."
        )
    return rank, world


def texts_of(pipeline: Any, state: Any, rank: int) -> dict[str, Any]:
    """Return the state of a rank's iterator as texts, under the keys of a state dict.

    The keys do not depend on the position. Those of an ElasticIterator do not depend on the number
    of ranks either: there is one for each lane, or a single one if all ranks have the same state.
    So `torch.distributed.checkpoint` finds them after the number of ranks has changed.
    """
    if getattr(pipeline, "has_lane_states", False):
        lanes = {} if state is None else {int(n): one for n, one in state["lane_states"].items()}
        return {
            f"lane_{n}": _text({**state, "lane_states": {str(n): lanes[n]}} if n in lanes else None)
            for n in pipeline.owned
        }
    shared = getattr(pipeline, "any_state_fits", False)
    return {"all_ranks" if shared else f"rank_{rank}": _text(state)}


def _text(state: Any) -> Any:
    return "" if state is None else state_dicts.to_text(state)


def elastic_state(elastic: Any, state_dict: Mapping[str, Any]) -> Any:
    """Return the state of an ElasticIterator in a state dict of any number of ranks."""
    found = [
        state_dicts.of_text(text)
        for key, text in state_dict.items()
        if key.startswith(("lane_", "all_ranks", "rank_")) and text
    ]
    if len(found) > 1 and getattr(elastic, "has_lane_states", False):
        return elastic.merged(found)
    return found[0] if found else None
