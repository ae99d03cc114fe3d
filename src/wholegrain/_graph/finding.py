"""Finds the positions of a record in a pipeline: the inverse of `provenance`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from wholegrain._core.origins import Traced
from wholegrain._core.types import Indices
from wholegrain._core.whole_number import whole_count, whole_number
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.provenance import opened
from wholegrain._graph.steps import steps_of
from wholegrain._graph.tracing import Tracer, names_of_sources, sources_of
from wholegrain._observe import outline
from wholegrain._state import counting

_MOST = 2**48
"""Longer datasets are infinite."""


class SearchNeededError(Exception):
    """Where the records go is known only after reading."""


def find(dataset: Any, index: Any, source: str | None, stop: Any) -> list[int]:
    """Return the positions of a record; see `MapDataset.find` and `IterDataset.find`."""
    finder = _Finder(dataset, whole_number("source_index", index), source)
    limit = None if stop is None else whole_count("stop", stop)
    try:
        if isinstance(dataset, MapDataset):
            return list(map(int, finder.in_map(dataset, _end(dataset, limit))))
        return sorted(set(finder.in_iter(dataset, limit).tolist()))
    except SearchNeededError as why:
        if limit is None:
            raise ValueError(
                f"{why}, so `find` has to read the elements. Say how many: `ds.find({index},"
                " stop=1000)` reads the first 1000 elements."
            ) from None
    return finder.search(dataset, limit)


def _end(dataset: MapDataset[Any], stop: int | None) -> int:
    if stop is None:
        if outline.is_infinite(dataset):
            raise ValueError(
                "The dataset is infinite, and so are the positions of a record. Say how many"
                " elements to look at: `ds.find(index, stop=1000)`."
            )
        return len(dataset)
    return min(stop, len(dataset))


class _Finder:
    """Finds one record of one source.

    Args:
        dataset: The whole pipeline.
        index: The number of the record in the source.
        source: The name of the source; None if there is only one.
    """

    def __init__(self, dataset: Any, index: int, source: str | None) -> None:
        self._names = names_of_sources(dataset)
        self._index = index
        names = list(dict.fromkeys(self._names.values()))
        if source is None:
            if len(names) > 1:
                raise ValueError(
                    f"The pipeline has several sources: {names}. Say which one has the record:"
                    f" `ds.find({index}, source={names[0]!r})`."
                )
        elif names and source not in names:
            raise ValueError(f"The pipeline has no source {source!r}. Its sources are {names}.")
        self._source = source or (names[0] if names else None)
        for one in sources_of(dataset):
            if self._is_meant(one) and isinstance(one, MapDataset) and not 0 <= index < len(one):
                raise IndexError(
                    f"There is no record {index} in {self._source!r}, which has {len(one)}."
                )

    def _is_meant(self, dataset: Any) -> bool:
        return self._names.get(id(dataset)) == self._source

    # By arithmetic.

    def in_map(self, dataset: MapDataset[Any], stop: int) -> Indices:
        """Return the sorted indices before `stop` at which the record comes."""
        found = self._candidates(dataset, stop)
        if not dataset.sparse:
            return found
        # A filter or a flat map may have dropped the record there.
        traced = Tracer(dataset)(dataset)
        kept = [n for n in found.tolist() if self._has(traced.getitem(n))]
        return np.array(kept, np.int64)

    def _candidates(self, dataset: MapDataset[Any], stop: int) -> Indices:
        if not self._leads_to_source(dataset):
            return _NONE
        inputs = getattr(dataset, "traced_inputs", None) or dataset.parents
        if not inputs:
            return np.arange(self._index, stop, len(dataset))
        keys = []
        for number, one in enumerate(inputs):
            end = dataset._stop_in_parent(number, stop)
            if end is None:
                kind = type(dataset).__name__
                raise SearchNeededError(
                    f"{kind} does not tell at which indices it reads its parent"
                )
            keys.append(self._candidates(one, end))
        found = np.unique(dataset._positions_of(keys, stop))
        return found[(found >= 0) & (found < stop)]

    def _leads_to_source(self, dataset: Any) -> bool:
        return any(map(self._is_meant, sources_of(dataset)))

    def in_iter(self, dataset: Any, stop: int | None) -> Indices:
        """Return the steps before `stop` at which the record comes."""
        steps = steps_of(dataset)
        if steps is None:
            raise SearchNeededError(f"The positions after {dataset} are not arithmetic")
        stop = steps.total if stop is None else min(stop, steps.total)
        if stop >= _MOST:
            raise ValueError(
                "The pipeline is infinite, and so are the positions of a record. Say how many steps"
                " to look at: `ds.find(index, stop=1000)`."
            )
        return self._steps(dataset, stop)

    def _steps(self, dataset: Any, stop: int) -> Indices:
        if counting.is_bridge(dataset):
            (parent,) = dataset.parents
            return self.in_map(parent, min(stop, len(parent)))
        if getattr(dataset, "takes_turns", False):
            return self._steps_of_shares(dataset, dataset.shares, stop)
        rule = counting.rule_of(dataset) if "counting" in vars(type(dataset)) else None
        size = 1 if rule is None else rule.size
        if rule is not None and rule.limit is not None:
            stop = min(stop, rule.limit)
        found = self._steps(dataset.parents[0], stop * size) // size
        return found[found < stop]

    def _steps_of_shares(self, dataset: Any, shares: Any, stop: int) -> Indices:
        count = shares.count
        totals = [getattr(steps_of(shares.share(n)), "total", 0) for n in range(count)]
        if stop > count * min(totals) and len(set(totals)) > 1:
            # The turns of the others change when a worker has ended.
            raise SearchNeededError(
                f"The workers of {dataset} do not have the same number of steps"
            )
        found = [
            self._steps(shares.share(number), -(-stop // count)) * count + number
            for number in range(count)
        ]
        joined = np.concatenate(found)
        return joined[joined < stop]

    # By reading.

    def search(self, dataset: Any, stop: int) -> list[int]:
        """Return the positions at which the record comes, among the first elements."""
        traced = Tracer(dataset)(dataset)
        if isinstance(dataset, MapDataset):
            indices = range(_end(dataset, stop))
            return [index for index in indices if self._has(traced.getitem(index))]
        with opened(traced, None) as iterator:
            first = itertools.islice(iterator, stop)
            return [step for step, one in enumerate(first) if self._has(one)]

    def _has(self, traced: Traced | None) -> bool:
        if traced is None:
            return False
        return any(
            one.index == self._index and self._source in (None, one.source)
            for one in traced.origins
        )


_NONE: Indices = np.zeros(0, np.int64)


def scanned(read: Any, stop: int, wanted: Indices) -> Indices:
    """Return the indices before `stop` that an array function maps to one of `wanted`."""
    found = [_NONE]
    for start in range(0, stop if len(wanted) else 0, _SCANNED):
        indices = np.arange(start, min(start + _SCANNED, stop))
        found.append(indices[np.isin(read(indices), wanted)])
    return np.concatenate(found)


_SCANNED = 1 << 16
