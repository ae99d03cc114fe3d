"""The deprecated packing operation of the DataLoader."""

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from wholegrain._core import tree
from wholegrain._core.types import NDArray
from wholegrain._packing.bins import make_bins
from wholegrain._packing.features import Feature, PackingPlan
from wholegrain._packing.packed_batch import empty_arrays
from wholegrain._packing.recycling import RecycledArrays
from wholegrain.record import Record, RecordMetadata

PackedData = tuple[Any, Any, Any]


@dataclasses.dataclass
class PackAndBatchOperation:
    """Packs records into batches of rows, each record in the first row that has room for it.

    Deprecated: use `FirstFitPackIterDataset`.

    The data of a packed record is a tuple of three: values, segment ids and positions. Each has
    the structure of `length_struct`, with arrays of shape `(batch_size, length, ...)`.

    Args:
        length_struct: For each array of a record, the length of a row.
        batch_size: The number of rows in a batch.
        max_sequences_per_bin: The maximum number of records in a row.
    """

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None = None

    _has_warned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not PackAndBatchOperation._has_warned:
            PackAndBatchOperation._has_warned = True
            warnings.warn(
                "`PackAndBatchOperation` is deprecated. Use `FirstFitPackIterDataset`, which"
                " returns its rows one by one, and `batch`.",
                DeprecationWarning,
                stacklevel=3,
            )
        if self.batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, but got {self.batch_size}.")
        if self.max_sequences_per_bin is not None and self.max_sequences_per_bin < 1:
            raise ValueError(
                "`max_sequences_per_bin` must be at least 1, but got"
                f" {self.max_sequences_per_bin}. Leave it out to have no limit."
            )

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[PackedData]]:
        batch: _Batch | None = None
        metadata: RecordMetadata | None = None
        for record in input_iterator:
            sequences = self._sequences(record.data)
            if batch is None or not batch.add(sequences):
                if batch is not None and metadata is not None:
                    yield Record(metadata.remove_record_key(), batch.data())
                batch = _Batch(self, sequences)
                batch.add(sequences)
            metadata = record.metadata
        if batch is not None and metadata is not None:
            yield Record(metadata.remove_record_key(), batch.data())

    def _sequences(self, data: Any) -> list[NDArray[Any]]:
        """Return the arrays of a record, in the order of `length_struct`."""
        pairs: list[list[Any]] = []
        tree.zip_leaves(pairs.append, [self.length_struct, data])
        sequences = []
        for length, value in pairs:
            sequence = np.asarray(value)
            if not sequence.ndim:
                raise ValueError(f"Only arrays with a length can be packed, but got {value!r}.")
            if len(sequence) > length:
                raise ValueError(
                    f"A record is longer than a packed row: an array has {len(sequence)} of at"
                    f" most {length}. Truncate the sequences before packing."
                )
            sequences.append(sequence)
        return sequences


class _Batch:
    def __init__(self, operation: PackAndBatchOperation, first: list[NDArray[Any]]) -> None:
        self._structure = operation.length_struct
        features = [
            Feature(path=(), capacity=length, alignment=1, padding=None, is_meta=False)
            for length in tree.leaves(operation.length_struct)
        ]
        plan = PackingPlan(
            structure={},
            features=tuple(features),
            list_features=(),
            num_bins=operation.batch_size,
            max_sequences_per_bin=operation.max_sequences_per_bin,
            best_fit=False,
        )
        memory = RecycledArrays(max_spare=0)  # batches are returned without a copy
        self._arrays = [
            empty_arrays(plan.num_bins, feature, sequence, memory)
            for feature, sequence in zip(features, first, strict=True)
        ]
        self._bins = make_bins(plan, self._arrays)

    def add(self, sequences: list[NDArray[Any]]) -> bool:
        place = self._bins.place(tuple(map(len, sequences)))
        if place is None:
            return False
        row, *starts = place
        for arrays, sequence, start in zip(self._arrays, sequences, starts, strict=True):
            arrays.values[row, start : start + len(sequence)] = sequence
        return True

    def data(self) -> PackedData:
        return (
            self._like_structure([arrays.values for arrays in self._arrays]),
            self._like_structure([arrays.segment_ids for arrays in self._arrays]),
            self._like_structure([arrays.positions for arrays in self._arrays]),
        )

    def _like_structure(self, arrays: list[Any]) -> Any:
        remaining = iter(arrays)
        return tree.map_leaves(lambda _: next(remaining), self._structure)
