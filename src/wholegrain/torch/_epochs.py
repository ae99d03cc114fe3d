"""Epochs of a pipeline: which elements they have, and how many."""

from __future__ import annotations

from typing import Any

from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.prefetching import ShardedIterDataset
from wholegrain._graph.shares import shard
from wholegrain._loader.records import SampledMapDataset
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


def check_has_epochs(dataset: Any) -> None:
    """Raise if a pipeline has a single epoch, because a sampler says how many it reads."""
    if isinstance(dataset, SampledMapDataset):
        raise ValueError(
            "The sampler of a DataLoader says how many epochs there are, so a loader of it has one"
            " epoch. Give the sampler `num_epochs=None`, and the loader `steps_per_epoch`; or pass"
            " `reseed_each_epoch=False` to read the same epoch again."
        )
    if not isinstance(dataset, MapDataset):
        for parent in getattr(dataset, "parents", ()):
            check_has_epochs(parent)


def count_of(dataset: Any) -> int | None:
    """Return the number of elements of a finite pipeline; None if it is not known."""
    if isinstance(dataset, MapDataset):
        return None if dataset.sparse else len(dataset)
    if isinstance(dataset, ShardedIterDataset):
        return _count_of_shares(dataset)
    if getattr(type(dataset), "is_bridge", False):
        return len(dataset.parents[0]) if dataset.gives_all else None
    rule = _rule_of(dataset)
    if rule is None:
        # A stage that only passes elements on, such as a prefetch, has its parent's positions.
        spec = vars(type(dataset)).get("checkpoint")
        is_same = isinstance(spec, CheckpointSpec) and spec.position == "parent"
        return count_of(dataset.parents[0]) if is_same else None
    count = count_of(dataset.parents[0])
    if count is None:
        return None
    count = (count if rule.drop_remainder else count + rule.size - 1) // rule.size
    return count if rule.limit is None else min(count, rule.limit)


def has_workers(dataset: Any) -> bool:
    """Return whether a fixed number of workers runs a pipeline."""
    return without_workers(dataset) is not dataset


def without_workers(dataset: Any) -> Any:
    """Return the same pipeline in this process."""
    if isinstance(dataset, MapDataset) or len(getattr(dataset, "parents", ())) != 1:
        return dataset
    parent = without_workers(dataset.parents[0])
    return parent if isinstance(dataset, ShardedIterDataset) else dataset.with_parents([parent])


def _count_of_shares(dataset: Any) -> int | None:
    total = 0
    workers, sequential = dataset._num_workers, dataset._sequential  # noqa: SLF001
    for number in range(workers):
        count = count_of(shard(dataset.parents[0], number, workers, sequential))
        if count is None:
            return None
        total += count
    return total


def _rule_of(dataset: Any) -> CountingRule | None:
    # Only of the class itself, because a subclass may behave differently.
    rule = dataset.counting if "counting" in vars(type(dataset)) else None
    return rule if isinstance(rule, CountingRule) else None
