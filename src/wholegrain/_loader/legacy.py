"""Grain's older operations: functions from one iterator of records to another."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wholegrain._core import tree
from wholegrain._core.elements import describe
from wholegrain._core.interruption import is_interruption
from wholegrain.record import Record


@runtime_checkable
class Operation(Protocol):
    """Transforms an iterator of records."""

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Return the records after this operation."""


_warned: set[type] = set()


def _warn_once(operation: Any, instead: str) -> None:
    kind = type(operation)
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(
            f"`{kind.__name__}` is deprecated. Use `{instead}` instead.",
            DeprecationWarning,
            stacklevel=3,
        )


@dataclasses.dataclass
class MapOperation:
    """Replaces the data of each record by `map_function(data)`."""

    map_function: Callable[[Any], Any]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Return the records after this operation."""
        _warn_once(self, "transforms.Map")
        return self._run(input_iterator)

    def _run(self, records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in records:
            try:
                data = self.map_function(record.data)
            except Exception as error:
                if is_interruption(error):
                    raise
                raise ValueError(
                    f"PyGrain encountered an error when calling map function: {error}"
                ) from error
            yield Record(record.metadata.remove_record_key(), data)


@dataclasses.dataclass
class RandomMapOperation:
    """Replaces the data of each record by `random_map_function(data, rng)`."""

    random_map_function: Callable[[Any, np.random.Generator], Any]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Return the records after this operation."""
        _warn_once(self, "transforms.RandomMap")
        return self._run(input_iterator)

    def _run(self, records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in records:
            rng: Any = record.metadata.rng
            try:
                data = self.random_map_function(record.data, rng)
            except Exception as error:
                if is_interruption(error):
                    raise
                raise ValueError(
                    f"PyGrain encountered an error when calling random map function: {error}"
                ) from error
            yield Record(record.metadata.remove_record_key(), data)


@dataclasses.dataclass
class FilterOperation:
    """Keeps the records whose data a function accepts."""

    condition_function: Callable[[Any], bool]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Return the records after this operation."""
        _warn_once(self, "transforms.Filter")
        return self._run(input_iterator)

    def _run(self, records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in records:
            try:
                kept = self.condition_function(record.data)
            except Exception as error:
                if is_interruption(error):
                    raise
                raise ValueError(
                    f"PyGrain encountered an error when calling filter function: {error}"
                ) from error
            if kept:
                yield Record(record.metadata.remove_record_key(), record.data)


@dataclasses.dataclass
class BatchOperation:
    """Groups the data of `batch_size` consecutive records."""

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None

    def __post_init__(self) -> None:
        if self.batch_size <= 0:
            raise ValueError(
                f"A batch needs at least one element, but got batch_size={self.batch_size}."
            )
        self._display_deprecation_message = True

    def disable_deprecation_message(self) -> None:
        """Do not warn that this operation is deprecated."""
        self._display_deprecation_message = False

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Return the records after this operation."""
        if self._display_deprecation_message:
            _warn_once(self, "transforms.Batch")
        return self._run(input_iterator)

    def _run(self, records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        batch: list[Any] = []
        metadata: Any = None
        for record in records:
            batch.append(record.data)
            metadata = record.metadata
            if len(batch) == self.batch_size:
                yield Record(metadata.remove_record_key(), self.make_batch(batch))
                batch = []
        if batch and not self.drop_remainder:
            yield Record(metadata.remove_record_key(), self.make_batch(batch))

    def make_batch(self, elements: Sequence[Any]) -> Any:
        """Combine elements into a batch."""
        if self.batch_fn is not None:
            return self.batch_fn(elements)
        differing = [
            number
            for number, element in enumerate(elements)
            if not _same_structure(elements[0], element)
        ]
        if differing:
            raise TypeError(
                "The elements of a batch must have the same structure, but those at"
                f" {differing} differ from the first: {describe(elements[differing[0]])}"
                f" instead of {describe(elements[0])}."
            )
        return tree.zip_leaves(np.stack, elements)


def _same_structure(first: Any, second: Any) -> bool:
    try:
        # In both directions, because one may have a container where the other has a leaf.
        tree.zip_leaves(len, [first, second])
        tree.zip_leaves(len, [second, first])
    except tree.StructureMismatchError:
        return False
    return True
