"""Metadata of records that creates the random generator when it is first used."""

from typing import Any

import numpy as np

from wholegrain.record import RecordMetadata
from wholegrain.samplers import record_rng


class LazyMetadata(RecordMetadata):
    """Metadata that creates its generator on demand."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type[RecordMetadata]:  # type: ignore[override]
        # It behaves as a RecordMetadata in `==`, in `repr` and in `dataclasses.replace`.
        return RecordMetadata

    def __reduce__(self) -> Any:
        return RecordMetadata, (self.index, self.record_key, self.rng)

    def remove_record_key(self) -> RecordMetadata:
        return self if self.record_key is None else KeylessMetadata(self)


class SeededMetadata(LazyMetadata):
    """Metadata of a record, with the sampler's seed instead of a generator."""

    __slots__ = ("_rng", "_seed")

    def __init__(self, index: int, record_key: int | None, seed: int) -> None:
        self.index = index
        self.record_key = record_key
        self._seed: int | None = seed
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator | None:
        """The record's own random generator."""
        if self._seed is not None:
            self._rng, self._seed = record_rng(self._seed, self.index), None
        return self._rng

    @rng.setter
    def rng(self, rng: np.random.Generator | None) -> None:
        self._rng, self._seed = rng, None


class KeylessMetadata(LazyMetadata):
    """Metadata of data that is no longer one record; the generator is that of the record."""

    __slots__ = ("_record", "_rng")

    def __init__(self, record: RecordMetadata) -> None:
        self.index = record.index
        self.record_key = None
        self._record: RecordMetadata | None = record
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator | None:
        """The random generator of the record."""
        return self._rng if self._record is None else self._record.rng

    @rng.setter
    def rng(self, rng: np.random.Generator | None) -> None:
        self._rng, self._record = rng, None
