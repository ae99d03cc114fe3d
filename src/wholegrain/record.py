"""A record in a DataLoader: the data, and where it comes from."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class RecordMetadata:
    """Where a record comes from.

    Args:
        index: The position in the sampler's stream over all shards and epochs.
        record_key: The key of the record in the source.
        rng: The record's own random generator, if the sampler has a seed.
    """

    index: int
    record_key: int | None = None
    rng: np.random.Generator | None = None

    def remove_record_key(self) -> RecordMetadata:
        """Return metadata for data that is no longer one record of the source."""
        if self.record_key is None:
            return self
        return dataclasses.replace(self, record_key=None)

    def __str__(self) -> str:
        return f"RecordMetadata(index={self.index}, record_key={self.record_key}, rng={self.rng!s})"


@dataclasses.dataclass(slots=True)
class Record(Generic[T]):
    """One element with its metadata."""

    metadata: RecordMetadata
    data: T
