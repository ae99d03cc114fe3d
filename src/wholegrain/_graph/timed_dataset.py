"""A MapDataset with a clock around it, which changes no element, order or state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wholegrain._core.types import Indices, NDArray, T
from wholegrain._graph.kinds import MapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe.clock import Clock


class TimedMapDataset(MapNode[T]):
    """A dataset with a clock around it. It keeps the functions of adjacent stages from fusing."""

    only_prefetches = True  # Not counted as a stage when seeds are derived from distances.

    def __init__(self, dataset: MapDataset[T], clock: Clock) -> None:
        super().__init__(dataset)
        self._timed = dataset
        self._clock = clock

    def __len__(self) -> int:
        return len(self._timed)

    # The argument is not named `index`: notes on errors find the stage by an argument of that name.

    def getitem(self, at: int) -> T | None:
        elements: list[T | None] = []
        started = self._clock.start()
        try:
            elements.append(self._timed.getitem(at))
        finally:
            self._clock.stop(started, elements)
        return elements[0]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        elements: Sequence[T | None] = ()
        started = self._clock.start()
        try:
            elements = self._timed.getitems(indices)
        finally:
            self._clock.stop(started, elements)
        return elements

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        rows: Any = None
        started = self._clock.start()
        try:
            rows = self._timed.gather(indices)
        finally:
            self._clock.stop(started, () if rows is None else rows)
        return rows  # type: ignore[no-any-return]

    @property
    def sparse(self) -> bool:
        return self._timed.sparse

    def source_index(self, index: int) -> int:
        return self._timed.source_index(index)

    @property
    def _element_spec(self) -> Any:
        return self._timed._element_spec

    def __str__(self) -> str:
        return str(self._timed)
