"""A MapDataset with a clock around it, which changes no element, order or state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wholegrain._core.stack import Empty
from wholegrain._core.types import Indices, NDArray, T
from wholegrain._graph.kinds import MapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe.clock import Clock, timed_call, timed_read


class TimedMapDataset(MapNode[T]):
    """A dataset with a clock around it. It keeps the functions of adjacent stages from fusing."""

    only_prefetches = True  # Not counted as a stage when seeds are derived from distances.

    def __init__(self, dataset: MapDataset[T], clock: Clock) -> None:
        super().__init__(dataset)
        self._timed = dataset
        self._clock = clock

    def __len__(self) -> int:
        return len(self._timed)

    def getitem(self, at: int) -> T | None:
        return timed_call(self._clock, self._timed.getitem, at)  # type: ignore[no-any-return]

    @property
    def stacks(self) -> bool:  # type: ignore[override]
        return self._timed.stacks

    def getitem_into(self, at: int, empty: Empty) -> T | None:
        return timed_call(self._clock, self._timed.getitem_into, at, empty)  # type: ignore[no-any-return]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        return timed_read(self._clock, self._timed.getitems, indices)  # type: ignore[no-any-return]

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        return timed_read(self._clock, self._timed.gather, indices)  # type: ignore[no-any-return]

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
