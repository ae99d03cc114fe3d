"""Reads elements from a source or a range of integers."""

import copy
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.types import Indices, NDArray, T
from wholegrain._graph.chunks import read_bulk, read_singly
from wholegrain._graph.given_sources import check_source
from wholegrain._graph.kinds import MapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec
from wholegrain.options import ReadOptions

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


class SourceMapDataset(MapNode[T]):
    """The elements of a source, epoch after epoch."""

    checkpoint = CheckpointSpec(fixed=("source",))

    def __init__(self, source: Any) -> None:
        super().__init__()
        check_source(source)
        self._source = source

    @property
    def source(self) -> Any:
        """The object that elements are read from."""
        return self._source

    def __len__(self) -> int:
        return len(self._source)

    def getitem(self, index: int) -> T | None:
        source = self._source
        try:
            length = len(source)
        except TypeError:  # An endless source.
            return source[index]  # type: ignore[no-any-return]
        return source[index % length]  # type: ignore[no-any-return]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        try:
            length = len(self._source)
        except TypeError:
            return read_many(self._source, indices, self, indices)
        if length == 0:
            raise ZeroDivisionError("The source is empty: there is no element to read.")
        return read_many(self._source, indices % length, self, indices)

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        source = self._source
        if type(source) is np.ndarray and source.dtype.kind in "biufc" and len(source):
            return source.take(indices % len(source), axis=0)
        return None

    def source_index(self, index: int) -> int:
        try:
            return index % len(self._source)
        except TypeError:
            return index

    def _record_at(self, index: int) -> tuple[int, int]:
        try:
            epoch, record = divmod(index, len(self._source))
        except TypeError:
            return index, 0
        return record, epoch

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return min(stop, len(self._source))

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        starts = np.arange(0, stop, max(1, len(self._source)))
        return (starts[:, None] + keys[0]).reshape(-1)

    @property
    def traced_inputs(self) -> tuple[Any, ...] | None:
        """The dataset that it reads as a source; None if the source is no dataset."""
        return (self._source,) if isinstance(self._source, MapDataset) else None

    def _traced(self, tracer: "Tracer") -> Any:
        if self.traced_inputs is None:
            return tracer.source(self)
        traced = copy.copy(self)
        traced._source = tracer(self._source)
        return traced

    def _label(self) -> str:
        return f"source({type(self.source).__name__})"

    def __str__(self) -> str:
        return f"SourceMapDataset(source={type(self._source).__name__})"


def read_many(source: Any, positions: Indices, stage: Any, indices: Indices) -> Sequence[Any]:
    """Read a chunk in the fastest way that the source supports.

    Args:
        source: The source.
        positions: The positions in the source.
        stage: The dataset that reads it.
        indices: The indices of the elements in that dataset.
    """
    if isinstance(source, MapDataset):
        return source.getitems(positions)
    if type(source) is np.ndarray:
        if source.ndim == 1 and source.dtype.kind in "biufc":
            return list(source[positions])
        return [source[position] for position in positions.tolist()]
    numbers = positions.tolist()
    for method in ("__getitems__", "_getitems"):
        if getattr(source, method, None) is not None:
            return read_bulk(source, method, numbers, stage, indices)  # type: ignore[no-any-return]
    return read_singly(source.__getitem__, numbers, stage, indices)  # type: ignore[no-any-return]


class RangeMapDataset(MapNode[int]):
    """The integers of a Python range."""

    checkpoint = CheckpointSpec(fixed=("start", "stop", "step"))

    def __init__(self, start: int, stop: int | None = None, step: int = 1) -> None:
        super().__init__()
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ValueError("`MapDataset.range` needs a step other than 0.")
        self.start = operator.index(start)
        self.stop = operator.index(stop)
        self.step = operator.index(step)
        self._length = len(range(self.start, self.stop, self.step))
        # Array arithmetic uses 64 bits.
        self._fits = max(abs(self.start), abs(self.stop)) < 2**62

    def __len__(self) -> int:
        return self._length

    def getitem(self, index: int) -> int:
        return self.start + index % self._length * self.step

    def getitems(self, indices: Indices) -> Sequence[int]:
        if not self._length:
            raise ZeroDivisionError("The range is empty: there is no element to read.")
        positions = indices % self._length
        if self.step == 1 and not self.start:
            return positions.tolist()  # type: ignore[no-any-return]
        if not self._fits:
            return [self.start + position * self.step for position in positions.tolist()]
        elements: list[int] = (positions * self.step + self.start).tolist()
        return elements

    def _default_read_options(self) -> ReadOptions:
        return ReadOptions(prefetch_buffer_size=0)

    @property
    def _element_spec(self) -> Any:
        from wholegrain._core.spec import ShapeDtypeStruct

        return ShapeDtypeStruct(shape=(), dtype=np.int64)

    def source_index(self, index: int) -> int:
        return index % self._length

    def _label(self) -> str:
        numbers = [self.start, self.stop] + [self.step] * (self.step != 1)
        return f"range({', '.join(map(str, numbers))})"

    def __str__(self) -> str:
        return f"RangeMapDataset(start={self.start}, stop={self.stop}, step={self.step})"
