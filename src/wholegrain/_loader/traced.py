"""The operations of a DataLoader on records that carry their origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core.names import transform_name
from wholegrain._core.origins import Traced, TracedFlatMap, TracedTest, in_rows
from wholegrain._core.stack import stack
from wholegrain._graph.nodes.batch import BatchIterDataset
from wholegrain._graph.nodes.filter import FilterIterDataset
from wholegrain._graph.nodes.flat_map import FlatMapIterDataset
from wholegrain._graph.nodes.map import MapIterDataset
from wholegrain._graph.tracing import UntraceableError
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


def untraceable(operation: Any) -> UntraceableError:
    """Return the error for an older operation, which is a function of all records."""
    return UntraceableError(
        f"{transform_name(operation)} does not tell which records its own are made from, because it"
        " transforms an iterator of records. Use a transformation of `wholegrain.transforms`, such"
        " as `Map`, `Filter` or `FlatMap`."
    )
