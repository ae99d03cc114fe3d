"""How many elements the lanes of an epoch have."""

from __future__ import annotations

import copy
from typing import Any

from wholegrain._graph import run
from wholegrain._graph.carrier import unpacking
from wholegrain._graph.error_rules import is_counted, rules_of
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.shares import Shares, shard
from wholegrain._graph.tolerance import Collector
from wholegrain._state.counting import CountedStates, UncountableError
from wholegrain.options import DatasetOptions, MultiprocessingOptions, ReadOptions

_AT_ONCE = 1024


def known_counts(ds: IterDataset[Any], lanes: int) -> tuple[int, int] | None:
    """Return how many elements the shortest and the longest lane have; None if it is not known."""
    if not is_counted(ds):
        return None
    counts = []
    for lane in range(lanes):
        share = shard(ds, lane, lanes, False)
        try:
            states = CountedStates(share)
        except UncountableError:
            return None
        with run.entered(run.RunContext(worker_index=lane, worker_count=lanes)):
            iterator = share.__iter__()
        counts.append(states.left(iterator.get_state()))
        iterator.close()
    return min(counts), max(counts)


def count_elements(
    ds: IterDataset[Any], lanes: int, options: MultiprocessingOptions | None
) -> tuple[int, int]:
    """Read all lanes, and return how many elements the shortest and the longest have.

    Args:
        ds: The pipeline.
        lanes: How many lanes there are.
        options: The workers that read the lanes.
    """
    counter = _LaneCounter(ds, lanes)
    counts = MapDataset.range(lanes).map(counter).to_iter_dataset(ReadOptions(0, 0))
    if options is not None:
        workers = options.num_workers
        workers = workers if isinstance(workers, str) else min(workers, lanes)
        plain = copy.copy(options)
        plain.lanes, plain.num_workers = None, workers
        counts = counts.mp_prefetch(plain)
    found = list(counts)
    return min(found), max(found)


class _LaneCounter:
    """Counts the elements of a lane, given its number."""

    def __init__(self, ds: IterDataset[Any], lanes: int) -> None:
        self._ds = ds
        self._lanes = lanes

    def __call__(self, lane: int) -> int:
        context = run.RunContext(run.gather_options(self._ds) or DatasetOptions())
        context.account = Collector(rules_of(self._ds), defers=False)
        opened = Shares(self._ds, self._lanes, False).open(lane, context)
        iterator: DatasetIterator[Any] = unpacking(opened, self._ds, context.account)
        count = 0
        try:
            while some := iterator.take(_AT_ONCE):
                count += len(some)
        finally:
            iterator.close()
        return count
