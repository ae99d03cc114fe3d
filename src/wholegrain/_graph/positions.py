"""Positions of pipelines in which every element read gives one element.

There, how many elements were read says everything, whatever the number of workers.
"""

from typing import Any

from wholegrain._core.types import State
from wholegrain._graph.nodes.map import MapIterDataset
from wholegrain._graph.nodes.options import SeedIterDataset, WithOptionsIterDataset
from wholegrain._graph.nodes.random_map import RandomMapIterDataset
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset

_UNCHANGED = (MapIterDataset, SeedIterDataset, WithOptionsIterDataset)


def state_at(dataset: Any, count: int) -> State | None:
    """Return the state after `count` elements; None if it does not follow from the count."""
    if type(dataset) is PrefetchIterDataset:
        return {"next_index": count} if dataset.gives_all else None
    if type(dataset) in _UNCHANGED:
        return state_at(dataset.parents[0], count)
    if type(dataset) is RandomMapIterDataset:
        parent = state_at(dataset.parents[0], count)
        return None if parent is None else {"parent": parent, "index_for_rng": count}
    return None


def elements_read(state: Any) -> int | None:
    """Return how many elements were read in all, if the state says."""
    if not isinstance(state, dict):
        return None
    if "next_index" in state:
        return int(state["next_index"])
    if "index_for_rng" in state:
        return int(state["index_for_rng"])
    workers = state.get("iterators_in_use_states")
    if workers is None:
        return None
    counts = [elements_read(worker) for worker in workers]
    return None if None in counts else sum(counts)  # type: ignore[arg-type]
