"""Which records a DataLoader reads, and in which order."""

import operator
import sys
from typing import Protocol, runtime_checkable

import numpy as np

from wholegrain._core.permute import shuffle_each, shuffle_index, shuffle_indices
from wholegrain._core.types import Indices
from wholegrain._core.whole_number import whole_number
from wholegrain.record import RecordMetadata
from wholegrain.sharding import NoSharding, ShardOptions, check_shard_options, even_split


@runtime_checkable
class Sampler(Protocol):
    """Defines which record is at each position of the stream of all shards and epochs.

    A sampler is stateless: it is copied to every worker, and several threads call it.
    """

    def __getitem__(self, index: int) -> RecordMetadata:
        """Return the record at `index`; raise IndexError past the end."""


def record_rng(seed: int, index: int) -> np.random.Generator:
    """Return the random generator of the record at `index`."""
    from wholegrain._core import philox  # numpy's random numbers are slow to import.

    return philox.generator(seed + index)


class _BuiltInSampler:
    """The common base of our samplers, which also compute many indices at once."""

    _num_records: int
    _shard_options: ShardOptions
    _seed: int | None
    _max_index: int | None

    def _checked_number(self, num_records: int) -> int:
        number = whole_number("num_records", num_records)
        if number <= 0:
            raise ValueError(
                f"`{type(self).__name__}` needs at least one record, but got"
                f" num_records={num_records}."
            )
        return number

    def __len__(self) -> int:
        return sys.maxsize if self._max_index is None else self._max_index

    def __getitem__(self, index: int) -> RecordMetadata:
        index = operator.index(index)
        if index < 0 or (self._max_index is not None and index >= self._max_index):
            if self._max_index == 0:
                raise IndexError(f"This sampler has no records, but index {index} was requested.")
            last = "infinity" if self._max_index is None else self._max_index - 1
            raise IndexError(
                f"This sampler has records at 0 to {last}, but index {index} was requested."
            )
        rng = None if self._seed is None else record_rng(self._seed, index)
        return RecordMetadata(index=index, record_key=self.record_key(index), rng=rng)

    @property
    def seed(self) -> int | None:
        """The seed of the records' random generators."""
        return self._seed

    @property
    def num_records(self) -> int:
        """The number of records of the source that are read."""
        return self._num_records

    def record_key(self, index: int) -> int:
        """Return the key of the record at an index."""
        raise NotImplementedError

    def record_keys(self, indices: Indices) -> Indices:
        """Return the keys of the records at many indices."""
        raise NotImplementedError


class SequentialSampler(_BuiltInSampler):
    """All records once, in the order of the source. Records are dealt to shards round-robin.

    Args:
        num_records: The number of records in the source.
        shard_options: Which shard this is.
        seed: The seed of random maps.
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008  (immutable)
        seed: int | None = None,
    ) -> None:
        self._num_records = self._checked_number(num_records)
        self._shard_options = check_shard_options(shard_options)
        self._seed = None if seed is None else whole_number("seed", seed)
        count = shard_options.shard_count
        whole = self._num_records // count * count
        self._max_index = whole if shard_options.drop_remainder else self._num_records

    def record_key(self, index: int) -> int:
        return index

    def record_keys(self, indices: Indices) -> Indices:
        return indices

    def __repr__(self) -> str:
        return (
            f"SequentialSampler(num_records={self._num_records},"
            f" shard_options={self._shard_options!r})"
        )


class IndexSampler(_BuiltInSampler):
    """Records in shuffled order, repeated and sharded.

    Each shard has a contiguous part of the records and shuffles within it, differently in each
    epoch.

    Args:
        num_records: The number of records in the source.
        shard_options: Which shard this is.
        shuffle: Whether the order is random.
        num_epochs: How often all records are read; infinitely often by default.
        seed: The seed of the order and of random maps; required for `shuffle`.
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008  (immutable)
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
    ) -> None:
        self._num_records = self._checked_number(num_records)
        if num_epochs is not None:
            num_epochs = whole_number("num_epochs", num_epochs)
            if num_epochs <= 0:
                raise ValueError(
                    f"`IndexSampler` needs at least one epoch, but got num_epochs={num_epochs}."
                    " Leave it out to repeat forever."
                )
        if shuffle and seed is None:
            raise ValueError("`IndexSampler(shuffle=True)` needs a seed: pass `seed=...`.")
        if seed is not None:
            seed = whole_number("seed", seed)
            if not 0 <= seed < 2**32:
                raise ValueError(
                    f"`IndexSampler` needs a seed from 0 to 2**32 - 1, but got seed={seed}."
                )
        self._shard_options = check_shard_options(shard_options)
        self._shuffle = shuffle
        self._num_epochs = num_epochs
        self._seed = seed
        self._count = shard_options.shard_count
        if isinstance(shard_options, NoSharding):
            self._first, stop = 0, self._num_records
        else:
            self._first, stop = even_split(self._num_records, shard_options)
        self._length = stop - self._first
        if num_epochs is None:
            self._max_index = None
        else:
            self._max_index = num_epochs * self._num_records
            if shard_options.drop_remainder and not isinstance(shard_options, NoSharding):
                self._max_index = min(self._max_index, self._length * self._count * num_epochs)

    @property
    def shard_is_empty(self) -> bool:
        """Whether there are more shards than records, so that this one is empty."""
        return self._length == 0

    def record_key(self, index: int) -> int:
        if not self._length:
            raise IndexError(
                f"This shard has no records: there are {self._num_records} for"
                f" {self._count} shards."
            )
        epoch, position = divmod(index // self._count, self._length)
        if self._shuffle and self._seed is not None:
            position = shuffle_index(position, self._length, (self._seed + epoch) % 2**32)
        return self._first + position

    def record_keys(self, indices: Indices) -> Indices:
        epochs, positions = np.divmod(indices // self._count, self._length)
        if self._shuffle and self._seed is not None and len(indices):
            seeds = (self._seed % 2**32 + epochs) % 2**32
            seed = int(seeds[0])
            if (seeds == seed).all():  # A chunk rarely spans two epochs.
                positions = shuffle_indices(positions, self._length, seed)
            else:
                positions = shuffle_each(positions, self._length, seeds)
        return self._first + positions

    def __repr__(self) -> str:
        return (
            f"IndexSampler(num_records={self._num_records}, shard_options={self._shard_options!r},"
            f" shuffle={self._shuffle}, num_epochs={self._num_epochs}, seed={self._seed})"
        )
