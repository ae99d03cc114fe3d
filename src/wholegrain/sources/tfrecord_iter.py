"""TFRecordIterDataset: the records of one TFRecord file, in order."""

import operator
import os
from collections.abc import Sequence
from typing import Any

from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.kinds import IterNode
from wholegrain.sources import _paths
from wholegrain.sources._errors import missing_file
from wholegrain.sources._tfrecord_reader import TFRecordReader

# How many records are read at once, at most.
_CHUNK = 256


class TFRecordIterDataset(IterNode[bytes]):
    """The records of one TFRecord file, as bytes, in order.

    The file may be compressed by gzip or zlib; what it is is seen from its first bytes. The
    checksums of the records' lengths are verified.

    Several files are read in turn by `InterleaveIterDataset`; records in any order, from files
    that are not compressed, are read by `wholegrain.sources.TFRecordDataSource`.

    Args:
        path: The file, or the address of an object in a store, `"s3://..."`.

    Example:
        >>> files = wg.MapDataset.source(sorted(glob.glob("data/*.tfrecord")))
        >>> records = files.map(TFRecordIterDataset)
        >>> ds = InterleaveIterDataset(records, cycle_length=4).map(parse)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = path

    def open(self) -> DatasetIterator[bytes]:
        return TFRecordDatasetIterator(self._path)


class TFRecordDatasetIterator(DatasetIterator[bytes]):
    """A position in a TFRecord file, which is opened for the first record.

    A subclass may set `_reader` to a reader of its own instead of calling `__init__`.
    """

    _reader: Any
    # Records that were read together, where each of them ends, and which of them is next.
    _records: Sequence[bytes] = ()
    _ends: Sequence[int] = ()
    _next = 0
    _offset = 0  # where the first of them starts

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        name = _paths.to_text(path)
        if not _paths.is_remote(name) and not os.path.exists(name):
            raise missing_file(name)
        self._reader = TFRecordReader(name)

    def __next__(self) -> bytes:
        if self._next == len(self._records) and not self._read():
            raise StopIteration
        record = self._records[self._next]
        self._next += 1
        return record

    def take(self, count: int) -> list[bytes]:
        if self._next == len(self._records) and not self._read():
            return []
        records = list(self._records[self._next : self._next + count])
        self._next += len(records)
        return records

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        self._next -= count

    def _read(self) -> bool:
        """Read some records; return whether there are any."""
        self._go_to(self._position())
        self._records = self._reader.take(_CHUNK)
        self._ends = self._reader.ends
        return bool(self._records)

    def _position(self) -> int:
        return self._ends[self._next - 1] if self._next else self._offset

    def _go_to(self, offset: int) -> None:
        self._offset = self._reader.offset = offset
        self._records, self._ends, self._next = (), (), 0

    def get_state(self) -> State:
        return {"reader_offset": self._position()}

    def set_state(self, state: State) -> None:
        self._go_to(operator.index(state["reader_offset"]))

    def close(self) -> None:
        self._go_to(self._position())
        self._reader.close()
        self._reader = _ClosedReader()


class _ClosedReader:
    """Takes the reader's place in a closed iterator: no check is needed while it is open."""

    offset = 0

    def take(self, count: int) -> list[bytes]:
        raise closed_error()

    def close(self) -> None:
        """Do nothing: it is closed."""
