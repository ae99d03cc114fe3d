"""The records of a source in the order of a sampler, as a random-access dataset."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import Indices
from wholegrain._graph.kinds import MapNode
from wholegrain._graph.nodes.source import read_many
from wholegrain.record import Record, RecordMetadata
from wholegrain.samplers import IndexSampler, SequentialSampler, record_rng
from wholegrain.sharding import ShardOptions

_BUILT_IN = (IndexSampler, SequentialSampler)


class SeededMetadata(RecordMetadata):
    """Metadata whose random generator is made when it is first used: most records need none."""

    __slots__ = ("_rng", "_seed")

    def __init__(self, index: int, record_key: int | None, seed: int) -> None:
        self.index = index
        self.record_key = record_key
        self._seed = seed
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator | None:
        """The record's own random generator."""
        if self._rng is None:
            self._rng = record_rng(self._seed, self.index)
        return self._rng

    @rng.setter
    def rng(self, rng: np.random.Generator | None) -> None:
        self._rng = rng

    def remove_record_key(self) -> RecordMetadata:
        if self.record_key is None:
            return self
        return RecordMetadata(index=self.index, record_key=None, rng=self.rng)

    def __reduce__(self) -> Any:
        return RecordMetadata, (self.index, self.record_key, self.rng)


class SampledMapDataset(MapNode[Record[Any]]):
    """Element `p` is the record that the sampler has at place `p` of this shard."""

    def __init__(
        self, source: Any, sampler: Any, shard_options: ShardOptions, num_places: int
    ) -> None:
        super().__init__()
        self._source = source
        self._sampler = sampler
        self._shard_index = shard_options.shard_index
        self._shard_count = shard_options.shard_count
        self._length = shard_length(num_places, shard_options)
        if isinstance(sampler, IndexSampler) and sampler.shard_is_empty:
            self._length = 0
        self._built_in = type(sampler) in _BUILT_IN

    def __len__(self) -> int:
        return self._length

    def getitem(self, index: int) -> Record[Any]:
        metadata = self._metadata(index * self._shard_count + self._shard_index)
        return Record(metadata, self._source[self._key(metadata.record_key)])

    def _metadata(self, place: int) -> RecordMetadata:
        sampler = self._sampler
        if not self._built_in:
            return sampler[place]  # type: ignore[no-any-return]
        if sampler.seed is None:
            return RecordMetadata(place, sampler.record_key(place))
        return SeededMetadata(place, sampler.record_key(place), sampler.seed)

    def getitems(self, indices: Indices) -> Sequence[Record[Any]]:
        places = indices * self._shard_count + self._shard_index
        metadata: list[RecordMetadata]
        if not self._built_in:
            metadata = [self._sampler[place] for place in places.tolist()]
            keys = np.array([self._key(one.record_key) for one in metadata], dtype=np.int64)
        else:
            keys = self._sampler.record_keys(places)
            pairs = zip(places.tolist(), keys.tolist(), strict=True)
            seed = self._sampler.seed
            if seed is None:
                metadata = [RecordMetadata(place, key) for place, key in pairs]
            else:
                metadata = [SeededMetadata(place, key, seed) for place, key in pairs]
            keys = keys % self._num_records()
        return list(map(Record, metadata, read_many(self._source, keys)))

    def _num_records(self) -> int:
        try:
            return len(self._source)
        except TypeError:  # The source does not know.
            return sys.maxsize

    def _key(self, key: int | None) -> int:
        if key is None:
            raise ValueError(
                "The sampler returned a record without `record_key`: there is nothing to read."
            )
        return key % self._num_records()

    def source_index(self, index: int) -> int:
        metadata = self._metadata(index * self._shard_count + self._shard_index)
        return self._key(metadata.record_key)

    def __str__(self) -> str:
        return (
            f"SampledMapDataset(source={type(self._source).__name__},"
            f" sampler={type(self._sampler).__name__})"
        )


def shard_length(num_places: int, options: ShardOptions) -> int:
    """Return how many of the sampler's places belong to a shard."""
    whole, rest = divmod(num_places, options.shard_count)
    if not options.drop_remainder and options.shard_index < rest:
        whole += 1
    return whole


def count_places(sampler: Any) -> int:
    """Return how many places a sampler has, by asking it where it has to."""
    if hasattr(sampler, "__len__"):
        return len(sampler)
    # The first place that is past the end, between two of which one is known to be.
    low, high = 0, sys.maxsize
    while low < high:
        middle = (low + high) // 2
        try:
            sampler[middle]
        except IndexError:
            high = middle
        else:
            low = middle + 1
    return low
