"""The operations of a DataLoader on records that carry their origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core.origins import Origin, Origins, Traced, TracedFlatMap, TracedTest, in_rows
from wholegrain._core.stack import stack
from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, TransformIterator
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._graph.nodes.batch import BatchIterDataset
from wholegrain._graph.nodes.filter import FilterIterDataset
from wholegrain._graph.nodes.flat_map import FlatMapIterDataset
from wholegrain._graph.nodes.map import MapIterDataset
from wholegrain._loader.legacy import BatchOperation
from wholegrain._loader.metadata import KeylessMetadata
from wholegrain.record import Record


def traced_map(parent: Any, function: Callable[[Any], Any]) -> Any:
    """Return the results of a function of records, or of their data; None is one, too."""
    return MapIterDataset(parent, lambda traced: traced.but(function(traced.value)))


def traced_filter(parent: Any, function: Callable[[Any], Any]) -> Any:
    """Return the records that a function accepts."""
    return FilterIterDataset(parent, TracedTest(function))


def traced_flat_map(parent: Any, transform: Any) -> Any:
    """Return the parts of records."""
    return FlatMapIterDataset(parent, TracedFlatMap(transform))


def traced_batch(parent: Any, operation: Any, bare: bool) -> Any:
    """Return batches of records, or of their data."""
    join: Any = operation.make_batch if type(operation) is BatchOperation else operation.batch_fn

    def batch(members: Sequence[Traced]) -> Traced:
        values = [member.value if bare else member.value.data for member in members]
        value = (join or stack)(values)
        if not bare:
            value = Record(KeylessMetadata(members[-1].value.metadata), value)
        return in_rows(value, [(member.origins, member.rows or 1) for member in members])

    return BatchIterDataset(parent, operation.batch_size, operation.drop_remainder, batch)


class TracedOperation(OneParentIterNode[Traced]):
    """What an older operation makes of records: a function of an iterator of records.

    Args:
        parent: The records, with their origins.
        dataset: The operation.
    """

    def __init__(self, parent: Any, dataset: Any) -> None:
        super().__init__(parent)
        self._dataset = dataset

    def open(self) -> DatasetIterator[Traced]:
        read = _Read(self._parent.__iter__())
        return _TracedOperationIterator(read, self._dataset.open_over(read))


class _Read(TransformIterator[Any]):
    """Records without their origins. It notes the origins of those that are read."""

    def __init__(self, parent: DatasetIterator[Traced]) -> None:
        super().__init__(parent)
        self.origins: list[Origin] = []

    def __next__(self) -> Any:
        traced = next(self.parent)
        self.origins += traced.origins
        return traced.value


class _TracedOperationIterator(TransformIterator[Traced]):
    """A record has the origins of those that were read for it, or else of those before it."""

    def __init__(self, read: _Read, parent: DatasetIterator[Any]) -> None:
        super().__init__(parent)
        self._read = read
        self._last: Origins = ()

    def __next__(self) -> Traced:
        record = next(self.parent)
        if self._read.origins:
            self._last = tuple(dict.fromkeys(self._read.origins))
            self._read.origins.clear()
        return Traced(record, self._last)

    def go_to(self, state: State) -> None:
        super().go_to(state)
        self._read.origins.clear()
        self._last = ()
