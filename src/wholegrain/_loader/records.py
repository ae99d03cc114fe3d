"""The records of a source in the order of a sampler, as a random-access dataset."""

import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.failure import PartlyFailed, is_failure
from wholegrain._core.types import Indices
from wholegrain._graph.chunks import for_each, read_singly
from wholegrain._graph.kinds import MapNode
from wholegrain._graph.nodes.source import read_many
from wholegrain._loader.metadata import SeededMetadata
from wholegrain._state.spec import CheckpointSpec
from wholegrain.record import Record, RecordMetadata
from wholegrain.samplers import IndexSampler, SequentialSampler
from wholegrain.sharding import ShardOptions

_BUILT_IN = (IndexSampler, SequentialSampler)


class SampledMapDataset(MapNode[Any]):
    """Element `p` is the record at position `p` of this shard of the sampler.

    Args:
        source: Has the data of the records.
        sampler: Says which record is at which place.
        shard_options: Which of the places belong to this shard.
        num_places: How many places the sampler has.
        bare: Whether elements are the data alone, without metadata.
    """

    checkpoint = CheckpointSpec(fixed=("source", "sampler", "shard_index", "shard_count"))

    def __init__(
        self,
        source: Any,
        sampler: Any,
        shard_options: ShardOptions,
        num_places: int,
        bare: bool,
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
        self._bare = bare

    @property
    def is_random(self) -> bool:
        """Whether the order is random."""
        return bool(getattr(self._sampler, "_shuffle", False))

    @property
    def epochs_inside(self) -> int | None:
        """How often the sampler contains each record; None if unknown or infinite."""
        return getattr(self._sampler, "_num_epochs", 1)

    def __len__(self) -> int:
        return self._length

    def getitem(self, index: int) -> Any:
        metadata = self._metadata(index * self._shard_count + self._shard_index)
        key = in_source(metadata.record_key, self._num_records())
        data = self._source[key]
        return data if self._bare else Record(metadata, data)

    def _metadata(self, place: int) -> RecordMetadata:
        sampler = self._sampler
        if not self._built_in:
            return sampler[place]  # type: ignore[no-any-return]
        if sampler.seed is None:
            return RecordMetadata(place, sampler.record_key(place))
        return SeededMetadata(place, sampler.record_key(place), sampler.seed)

    def getitems(self, indices: Indices) -> Sequence[Any]:
        places = indices * self._shard_count + self._shard_index
        if not self._built_in:
            return self._read_custom(places, indices)
        keys = self._sampler.record_keys(places)
        if self._bare:
            return read_many(self._source, self._in_source(keys), self, indices)
        pairs = zip(places.tolist(), keys.tolist(), strict=True)
        seed = self._sampler.seed
        metadata: list[RecordMetadata]
        if seed is None:
            metadata = [RecordMetadata(place, key) for place, key in pairs]
        else:
            metadata = [SeededMetadata(place, key, seed) for place, key in pairs]
        return _records(metadata, read_many(self._source, self._in_source(keys), self, indices))

    def _in_source(self, keys: Indices) -> Indices:
        count = self._num_records()
        return keys if count is None else keys % count

    def _read_custom(self, places: Indices, indices: Indices) -> Sequence[Any]:
        """Read the records of a user-defined sampler."""
        metadata = read_singly(self._sampler.__getitem__, places.tolist(), self, indices)
        count = self._num_records()

        def find_keys(results: list[Any], some: Sequence[RecordMetadata]) -> None:
            results.extend(in_source(one.record_key, count) for one in some)

        keys = for_each(find_keys, self, indices, metadata)
        if count is None or type(keys) is PartlyFailed:
            # Keys may be anything that the source accepts.
            read = self._source.__getitem__
            data: Sequence[Any] = for_each(
                lambda results, some: results.extend(map(read, some)), self, indices, keys
            )
        else:
            data = read_many(self._source, np.array(keys, np.int64), self, indices)
        return data if self._bare else _records(metadata, data)

    def _num_records(self) -> int | None:
        """Return the length of the source; None if it has none."""
        try:
            count = len(self._source)
        except TypeError:
            return None
        if not count:
            raise ZeroDivisionError("The source is empty, so there is no record to read.")
        return count

    def source_index(self, index: int) -> int:
        metadata = self._metadata(index * self._shard_count + self._shard_index)
        return operator.index(in_source(metadata.record_key, self._num_records()))

    def _record_at(self, index: int) -> tuple[int, int]:
        place, count = index * self._shard_count + self._shard_index, self._num_records()
        return self.source_index(index), 0 if count is None else place // count

    def _traced(self, tracer: Any) -> Any:
        return tracer.source(self, keeps_none=True)

    def __str__(self) -> str:
        return (
            f"SampledMapDataset(source={type(self._source).__name__},"
            f" sampler={type(self._sampler).__name__})"
        )


def _records(metadata: Sequence[Any], data: Sequence[Any]) -> list[Record[Any]]:
    """Combine the data with its metadata."""
    if type(data) is not PartlyFailed:
        return list(map(Record, metadata, data))
    pairs = zip(metadata, data, strict=True)
    return PartlyFailed([e if is_failure(e) else Record(one, e) for one, e in pairs])


def in_source(key: Any, num_records: int | None) -> Any:
    """Return the key to read: indices past the end of the source wrap around."""
    if key is None:
        raise ValueError(
            "The sampler returned metadata without `record_key`, so there is no record to read."
        )
    return key if num_records is None else key % num_records


def shard_length(num_places: int, options: ShardOptions) -> int:
    """Return how many positions of the sampler belong to a shard."""
    whole, rest = divmod(num_places, options.shard_count)
    if not options.drop_remainder and options.shard_index < rest:
        whole += 1
    return whole


def count_places(sampler: Any) -> int:
    """Return the length of a sampler, by bisection if it does not define one."""
    if hasattr(sampler, "__len__"):
        return len(sampler)
    # Bisect for the first position past the end.
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
