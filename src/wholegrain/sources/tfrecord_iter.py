"""TFRecordIterDataset: the records of a TFRecord file, in order."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any, Self

from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, StageIterator, closed_error
from wholegrain._graph.kinds import IterNode
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import number_of, wrong_state
from wholegrain.sources import _paths
from wholegrain.sources._tfrecord_reader import OVERHEAD, TFRecordReader

# How many records `next` reads from the reader at a time.
_RECORDS_AHEAD = 32


class TFRecordIterDataset(IterNode[bytes]):
    """The records of a TFRecord file, as bytes, in order.

    The file may be compressed with gzip or zlib as a whole. For several files, create a dataset
    for each and interleave them; workers then share the files. For random access, use
    `wholegrain.sources.TFRecordDataSource`.

    Args:
        path: A path, or the address of an object in a store, `"s3://..."`.
        check_payload: Whether to verify the checksums of payloads; by default if wholegrain's
            extension or `google-crc32c` is installed. The checksums of lengths are always
            verified.

    Example:
        >>> files = wg.MapDataset.source(["a.tfrecord", "b.tfrecord"])
        >>> ds = InterleaveIterDataset(files.map(TFRecordIterDataset), cycle_length=2)
        >>> ds = ds.map(parse).batch(32)
    """

    checkpoint = CheckpointSpec(fixed=("path",), free=("check_payload",))

    def __init__(self, path: str | os.PathLike[str], *, check_payload: bool | None = None) -> None:
        super().__init__()
        self._path = _paths.to_text(path)
        self._check_payload = check_payload

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return [self._path]

    def open(self) -> DatasetIterator[bytes]:
        return TFRecordDatasetIterator(self._path, check_payload=self._check_payload)


class TFRecordDatasetIterator(StageIterator[bytes]):
    """A position in a TFRecord file.

    A subclass may set `_reader` instead of calling `__init__`.
    """

    _reader: TFRecordReader
    _closed = False
    # The records of the last `take`, the offset of the first, and how many were not put back.
    _taken: Sequence[bytes] = ()
    _taken_from = 0
    _taken_count = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here, for subclasses that define `__init__`.
        iterator = super().__new__(cls)
        iterator._ahead = []
        return iterator

    def __init__(self, path: str, *, check_payload: bool | None = None) -> None:
        super().__init__()
        self._ahead: list[bytes]  # the next records in reverse order
        self._reader = TFRecordReader(path, check_payload=check_payload)

    def __next__(self) -> bytes:
        try:
            return self._ahead.pop()
        except IndexError:
            pass
        self._check_open()
        records = self._reader.take(_RECORDS_AHEAD)
        if not records:
            raise StopIteration
        records.reverse()
        self._ahead = records
        return records.pop()

    def take(self, count: int) -> list[bytes]:
        self._check_open()
        if self._ahead:
            self._seek(self._offset())
        self._taken_from = self._reader.tell()
        records = self._reader.take(count)
        self._taken, self._taken_count = tuple(records), len(records)
        return records

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        self.pass_over(-count)

    def pass_over(self, count: int) -> None:
        self._taken_count += count
        passed = self._taken[: self._taken_count]
        self._reader.seek(self._taken_from + sum(OVERHEAD + len(record) for record in passed))

    @property
    def moves_at_end(self) -> bool:
        return False

    def _offset(self) -> int:
        ahead = sum(OVERHEAD + len(record) for record in self._ahead)
        return self._reader.tell() - ahead

    def _seek(self, offset: int) -> None:
        self._reader.seek(offset)
        self._ahead = []

    def get_state(self) -> State:
        return {"reader_offset": self._offset()}

    def check_state(self, state: State) -> None:
        number_of(state, "reader_offset", self)

    def go_to(self, state: State) -> None:
        offset = operator.index(state["reader_offset"])
        self._seek(offset)
        if not self._closed and not self._reader.is_at_record():
            raise wrong_state(self, f"no record of {self._reader.path!r} starts at byte {offset}")

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._seek(self._offset())
            self._reader.close()
