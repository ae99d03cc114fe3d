"""Operations of a DataLoader, as transformations of records."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wholegrain import transforms
from wholegrain._core.names import transform_name
from wholegrain._core.stack import Empty
from wholegrain._core.types import State
from wholegrain._graph import fusion
from wholegrain._graph.element_iterator import ElementIterator
from wholegrain._graph.iterator import DatasetIterator, TransformIterator
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._graph.nodes.batch import BatchDatasetIterator
from wholegrain._graph.nodes.filter import FilterDatasetIterator
from wholegrain._graph.nodes.flat_map import FlatMapDatasetIterator
from wholegrain._graph.passing import PassingIterator
from wholegrain._loader.legacy import BatchOperation
from wholegrain._loader.metadata import KeylessMetadata
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec
from wholegrain.record import Record, RecordMetadata

BatchFn = Callable[[Sequence[Any]], Any]


def need_no_metadata(operations: Sequence[Any]) -> bool:
    """Whether nobody asks where a record comes from: then the data goes through bare."""
    ask = (transforms.RandomMap, transforms.TfRandomMap, transforms.MapWithIndex)
    bare = (transforms.Map, transforms.Filter, transforms.Batch)
    return all(
        isinstance(operation, bare) and not isinstance(operation, (*ask, transforms.FlatMap))
        for operation in operations
    )


class OperationIterDataset(OneParentIterNode[Any]):
    """The records after one operation.

    Args:
        parent: The records before it.
        operation: What is done to them.
        shard_count: Of how many shards they are one.
        bare: Whether records are their data alone.
    """

    def __init__(self, parent: Any, operation: Any, shard_count: int, bare: bool) -> None:
        super().__init__(parent)
        self._operation = operation
        self._shard_count = shard_count
        self._bare = bare

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return isinstance(self._operation, (transforms.RandomMap, transforms.TfRandomMap))

    @property
    def checkpoint(self) -> CheckpointSpec:
        match self._operation:
            case transforms.Batch() | BatchOperation():
                sizes = ("operation.batch_size", "operation.drop_remainder")
                return CheckpointSpec("Batch", fixed=sizes, position="regrouped")
            case transforms.Filter():
                return CheckpointSpec("Filter", free=("operation",), position="regrouped")
            case transforms.FlatMap():
                return CheckpointSpec("FlatMap", free=("operation",), rereads=True)
            case transforms.Map():
                return CheckpointSpec("Map", free=("operation",), position="parent")
            case transforms.MapWithIndex():
                return CheckpointSpec("MapWithIndex", free=("operation",), position="parent")
            case transforms.RandomMap() | transforms.TfRandomMap():
                return CheckpointSpec("RandomMap", free=("operation",), position="parent")
        return CheckpointSpec("Operation", free=("operation",))

    @property
    def counting(self) -> CountingRule | None:
        match self._operation:
            case transforms.Batch(batch_size, drop_remainder):
                return CountingRule(batch_size, drop_remainder)
            case transforms.Filter() | transforms.FlatMap():
                return None
            case transforms.Map() | transforms.MapWithIndex():
                return CountingRule()
            case transforms.RandomMap() | transforms.TfRandomMap():
                return CountingRule()
        if type(self._operation) is BatchOperation:
            return CountingRule(self._operation.batch_size, self._operation.drop_remainder)
        return None

    def open(self) -> DatasetIterator[Any]:
        parent = self._parent.__iter__()
        return self._open_bare(parent) if self._bare else self._open(parent)

    def _open_bare(self, parent: DatasetIterator[Any]) -> DatasetIterator[Any]:
        operation = self._operation
        match operation:
            case transforms.Map():
                return _MapIterator(parent, operation, operation.map)
            case transforms.Filter():
                return FilterDatasetIterator(parent, operation)
        return BatchDatasetIterator(
            parent, operation.batch_size, operation.drop_remainder, operation.batch_fn
        )

    def _open(self, parent: DatasetIterator[Any]) -> DatasetIterator[Any]:
        operation = self._operation
        function = self._function_of_record()
        if function is not None:
            return _on_data(parent, operation, function)
        match operation:
            case transforms.FlatMap():
                return FlatMapDatasetIterator(parent, _RecordsOf(operation))
            case transforms.Filter():
                return FilterDatasetIterator(parent, _OnData(operation))
            case transforms.Batch(batch_size, drop_remainder, batch_fn):
                return _BatchIterator(parent, batch_size, drop_remainder, batch_fn)
        if type(operation) is BatchOperation:
            return _BatchIterator(
                parent, operation.batch_size, operation.drop_remainder, operation.make_batch
            )
        return _LegacyIterator(parent, operation)

    def _function_of_record(self) -> Callable[[Record[Any]], Any] | None:
        """Return what computes the new data of a record; None if not each record yields one."""
        operation = self._operation
        match operation:
            case transforms.Map():
                return lambda record: operation.map(record.data)
            case transforms.RandomMap():
                return _with_rng(operation.random_map)
            case transforms.TfRandomMap():
                return _with_rng(operation.np_random_map)
            case transforms.FlatMap() | transforms.Filter() | transforms.Batch():
                return None
            case transforms.MapWithIndex():
                count = self._shard_count
                return lambda record: operation.map_with_index(
                    record.metadata.index // count, record.data
                )
        return None

    def _traced(self, tracer: Any) -> Any:
        from wholegrain._loader import traced  # Rarely used.

        operation, parent, bare = self._operation, tracer(self._parent), self._bare
        function = operation.map if bare and isinstance(operation, transforms.Map) else None
        if function is not None:
            return traced.traced_map(parent, function)
        of_record = self._function_of_record()
        if of_record is not None:
            return traced.traced_map(parent, lambda one: Record(one.metadata, of_record(one)))
        match operation:
            case transforms.FlatMap():
                return traced.traced_flat_map(parent, _RecordsOf(operation))
            case transforms.Filter():
                keeps = operation.filter if bare else _OnData(operation)
                return traced.traced_filter(parent, keeps)
            case transforms.Batch() | BatchOperation():
                return traced.traced_batch(parent, operation, bare)
        return traced.TracedOperation(parent, self)

    @property
    def loses_held(self) -> bool:
        """Whether records that it holds are not part of its state: an older operation."""
        known = (transforms.Map, transforms.RandomMap, transforms.TfRandomMap, transforms.Filter)
        more = (transforms.MapWithIndex, transforms.FlatMap, transforms.Batch, BatchOperation)
        return not isinstance(self._operation, (*known, *more))

    def open_over(self, parent: DatasetIterator[Any]) -> DatasetIterator[Any]:
        """Open it over an iterator of records."""
        return self._open(parent)

    @property
    def _transform(self) -> Any:
        """By which reports know its function."""
        return self._operation

    def __str__(self) -> str:
        return f"OperationIterDataset({transform_name(self._operation)})"


def _with_rng(function: Callable[[Any, Any], Any]) -> Callable[[Record[Any]], Any]:
    def call(record: Record[Any]) -> Any:
        rng = record.metadata.rng
        if rng is None:
            raise ValueError(
                "RandomMap needs a sampler with a seed: its records have no random generator."
            )
        return function(record.data, rng)

    return call


class _MapIterator(ElementIterator[Any]):
    """The results of a function. None is data like any other."""

    kind = fusion.ANY


def _on_data(
    parent: DatasetIterator[Any], operation: Any, function: Callable[[Record[Any]], Any]
) -> DatasetIterator[Any]:
    """Return records whose data is replaced by the result of a function."""
    return _MapIterator(parent, operation, lambda record: Record(record.metadata, function(record)))


class _OnData:
    """Applies a filter of data to records."""

    def __init__(self, operation: transforms.Filter) -> None:
        self._operation = operation

    def __call__(self, record: Record[Any]) -> bool:
        return self._operation.filter(record.data)

    def __str__(self) -> str:
        return transform_name(self._operation)


class _RecordsOf(transforms.FlatMap):
    """Applies a flat map of data to records. The parts have no key and no generator."""

    def __init__(self, operation: transforms.FlatMap) -> None:
        self._operation = operation

    def flat_map(self, element: Record[Any]) -> list[Record[Any]]:
        first = element.metadata.index * getattr(self._operation, "max_fan_out", 1)
        return [
            Record(RecordMetadata(index=first + number), part)
            for number, part in enumerate(self._operation.flat_map(element.data))
        ]

    def __str__(self) -> str:
        return transform_name(self._operation)


class _BatchIterator(BatchDatasetIterator[Record[Any]]):
    """Batches as records, each with the metadata of its last record."""

    def __next__(self) -> Record[Any]:
        batch = self._next_batch()
        return Record(KeylessMetadata(self._last), batch)

    def next_into(self, empty: Empty) -> Record[Any]:
        if not self._stacks:
            return next(self)
        batch = self._next_batch_into(empty)
        return Record(KeylessMetadata(self._last), batch)

    def _take(self, count: int) -> list[Any]:
        records = self.parent.take(count)
        if records:
            self._last = records[-1].metadata
        return [record.data for record in records]


class _LegacyIterator(TransformIterator[Record[Any]]):
    """The records that an older `Operation` yields.

    The state is the position of the stream that it reads. Records that it holds are not saved.
    """

    def __init__(self, parent: DatasetIterator[Any], operation: Any) -> None:
        super().__init__(parent)
        if not callable(operation):
            raise TypeError(
                "An operation has to be a transformation of `wholegrain.transforms`, or callable,"
                f" but got {operation!r}."
            )
        self._operation = operation
        self._start()

    def _start(self) -> None:
        self._records: Iterator[Record[Any]] = iter(self._operation(self.parent))

    def __next__(self) -> Record[Any]:
        try:
            return next(self._records)
        except StopIteration:
            raise
        except Exception:
            # The error has ended the generator. Continue after the record that failed.
            self._start()
            raise

    def go_to(self, state: State) -> None:
        super().go_to(state)
        # Start it again: it may hold records from another position, or have ended.
        self._start()


class DataIterDataset(OneParentIterNode[Any]):
    """The data of records, without their metadata."""

    checkpoint = CheckpointSpec(position="parent")
    counting = CountingRule()

    def __init__(self, parent: Any, bare: bool) -> None:
        super().__init__(parent)
        self._bare = bare

    def open(self) -> DatasetIterator[Any]:
        parent = self._parent.__iter__()
        return PassingIterator(parent) if self._bare else _DataIterator(parent)

    def _traced(self, tracer: Any) -> Any:
        from wholegrain._loader import traced

        parent = tracer(self._parent)
        return parent if self._bare else traced.traced_map(parent, operator.attrgetter("data"))


class _DataIterator(PassingIterator[Any]):
    def __next__(self) -> Any:
        return next(self.parent).data

    def next_into(self, empty: Empty) -> Any:
        return super().next_into(empty).data

    def take(self, count: int) -> list[Any]:
        return [record.data for record in self.parent.take(count)]
