"""Reorders elements within windows, so that hosts have about the same work in every step."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.failure import Failure
from wholegrain._core.permute import shuffle_indices
from wholegrain._core.types import IndexT, Indices, NDArray, T
from wholegrain._core.whole_number import whole_number
from wholegrain._graph.kinds import IndexTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec

Cost = Callable[[Any], float] | Sequence[float] | NDArray[Any]

_MOST_PLANS = 8


class BalanceMapDataset(IndexTransform[T]):
    """The parent's elements, reordered in windows; see `MapDataset.balance`."""

    keeps_size = True
    checkpoint = CheckpointSpec(fixed=("batch_size", "ways", "window"), free=("cost",))

    def __init__(
        self, parent: MapDataset[Any], cost: Cost, batch_size: int, ways: int, window: int
    ) -> None:
        super().__init__(parent)
        self._cost = cost
        self._batch_size = whole_number("batch_size", batch_size)
        self._ways = whole_number("ways", ways)
        self._window = whole_number("window", window)
        if min(self._batch_size, self._ways, self._window) < 1 or self._batch_size % self._ways:
            raise ValueError(
                "`balance` deals the rows of a step out evenly, so `batch_size` has to be a"
                f" positive multiple of `ways`, and `window` at least 1, but got"
                f" batch_size={batch_size}, ways={ways}, window={window}."
            )
        if not callable(cost) and not hasattr(cost, "__getitem__"):
            raise TypeError(
                "`cost` is a function of an element, or a sequence with the cost of each record of"
                f" the source, but got {cost!r}."
            )
        self._follow_parents()

    def _follow_parents(self) -> None:
        super()._follow_parents()
        self._plans: dict[tuple[int, int], Indices] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_plans": {}}

    def parent_index(self, index: IndexT) -> IndexT:
        if isinstance(index, np.ndarray):
            flat = [self._parent_index(one) for one in index.tolist()]
            return np.array(flat, np.int64).reshape(index.shape)
        return self._parent_index(int(index))

    def _parent_index(self, index: int) -> int:
        length = len(self.parent)
        epoch, position = divmod(index, length)
        size = self._batch_size * self._window
        window, place = divmod(position, size)
        plan = self._plans.get((epoch, window))
        if plan is None:
            start = epoch * length + window * size
            plan = self._planned(start, min(size, length - window * size), window)
            if (
                len(self._plans) >= _MOST_PLANS
            ):  # Another thread may read an old one: it remakes it.
                self._plans = {}
            self._plans[epoch, window] = plan
        return int(plan[place])

    def _planned(self, start: int, count: int, window: int) -> Indices:
        """Return the parent's index for each place of a window.

        Rows of similar costs make a step, and the steps come in a random order. Rows that do not
        fill a step stay at the end.
        """
        indices = np.arange(start, start + count)
        steps = count // self._batch_size
        whole = steps * self._batch_size
        if not steps:
            return indices
        costs = self._costs(indices[:whole])
        ordered = np.argsort(-costs, kind="stable").reshape(steps, self._batch_size)
        order = shuffle_indices(np.arange(steps), steps, window % 2**32)
        dealt = [self._dealt(ordered[step], costs) for step in order.tolist()]
        return np.concatenate([indices[:whole][np.concatenate(dealt)], indices[whole:]])

    def _dealt(self, rows: Indices, costs: NDArray[Any]) -> Indices:
        """Deal the rows of a step out, the most expensive first, to the way with the least cost.

        Way `w` has the rows at the places `w`, `w + ways` and so on, as a lane or a shard has.
        """
        each = self._batch_size // self._ways
        ways: list[list[int]] = [[] for _ in range(self._ways)]
        least = [(0.0, way) for way in range(self._ways)]
        for row in rows.tolist():
            cost, way = heapq.heappop(least)
            ways[way].append(row)
            if len(ways[way]) < each:
                heapq.heappush(least, (cost + float(costs[row]), way))
        return np.array(ways, np.int64).T.reshape(-1)

    def _costs(self, indices: Indices) -> NDArray[Any]:
        cost = self._cost
        if not callable(cost):
            records = [self.parent.source_index(index) for index in indices.tolist()]
            return np.array([float(cost[record]) for record in records])
        # An element that is missing or fails has no cost; it fails when it is read.
        elements = self.parent.getitems(indices)
        absent = [element is None or type(element) is Failure for element in elements]
        pairs = zip(elements, absent, strict=True)
        return np.array([0.0 if missing else float(cost(element)) for element, missing in pairs])

    def _label(self) -> str:
        return f"balance({self._ways} ways)"

    def _about(self, name: str) -> str:
        size = self._batch_size * self._window
        return f"{name} reorders each window of {size} elements by their cost."

    def __str__(self) -> str:
        return (
            f"BalanceMapDataset(batch_size={self._batch_size}, ways={self._ways},"
            f" window={self._window})"
        )
