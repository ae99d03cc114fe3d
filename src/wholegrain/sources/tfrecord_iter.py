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
    _starts: Sequence[int] = ()  # of the records that were taken last

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        name = _paths.to_text(path)
        if not _paths.is_remote(name) and not os.path.exists(name):
            raise missing_file(name)
        self._reader = TFRecordReader(name)

    def __next__(self) -> bytes:
        record: bytes = next(self._reader)
        return record

    def take(self, count: int) -> list[bytes]:
        reader = self._reader
        starts: list[int] = []
        records: list[bytes] = []
        try:
            while len(records) < count:
                start = reader.offset
                records.append(next(reader))
                starts.append(start)
        except StopIteration:
            pass
        except Exception:
            # It is raised again when it is the first.
            if not records:
                raise
        self._starts = starts
        return records

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        if count:
            self._reader.offset = self._starts[-count]

    def get_state(self) -> State:
        return {"reader_offset": self._reader.offset}

    def set_state(self, state: State) -> None:
        self._reader.offset = operator.index(state["reader_offset"])

    def close(self) -> None:
        self._reader.close()
        self._reader = _ClosedReader(self._reader.offset)


class _ClosedReader:
    """Takes the reader's place in a closed iterator: no check is needed while it is open."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __next__(self) -> bytes:
        raise closed_error()

    def close(self) -> None:
        """Do nothing: it is closed."""
