"""Datasets that read files in order, without an index."""

from __future__ import annotations

import abc
import operator
from typing import Any, NamedTuple, TypeVar

from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, StageIterator, closed_error
from wholegrain._graph.kinds import IterNode
from wholegrain._state.validate import number_of, wrong_state
from wholegrain.sources import _paths
from wholegrain.sources._errors import DataFileError

T = TypeVar("T")


class Position(NamedTuple):
    """A position between two records of a file.

    Attributes:
        offset: Where the next record starts in the content.
        line: How many lines, or samples, are before it.
    """

    offset: int
    line: int


START = Position(0, 0)


class RecordReader(abc.ABC):
    """Reads the records of one file in order."""

    @abc.abstractmethod
    def seek(self, position: Position) -> None:
        """Go to a position."""

    _error: DataFileError | None = None  # of the record after those that were returned

    def take(self) -> tuple[list[Any], list[Position]]:
        """Return some of the next records with the positions after them; none at the end.

        An exception is raised only for the first record, which is skipped if that is possible.
        """
        records: list[Any] = []
        positions: list[Position] = []
        begin = self.tell()
        try:
            if self._error is None:
                self._take(records, positions)
        except DataFileError as error:
            self._error = error
        except BaseException:
            self.seek(begin)  # An interruption: none of the records is returned.
            raise
        if self._error is not None and not records:
            pending, self._error = self._error, None
            raise pending
        return records, positions

    @abc.abstractmethod
    def _take(self, records: list[Any], positions: list[Position]) -> None:
        """Append some records and the positions after them; raise for one that is not valid."""

    @abc.abstractmethod
    def tell(self) -> Position:
        """Return the position after the last record that was returned or skipped."""

    def is_at_record(self) -> bool:
        """Return whether a record can start at the position, or the file ends there."""
        return True

    @abc.abstractmethod
    def close(self) -> None:
        """Close the file."""


class FilesIterDataset(IterNode[T]):
    """Base class of datasets of the records of files, in the order of the files."""

    def __init__(self, paths: _paths.Paths) -> None:
        super().__init__()
        self._paths = _paths.expand_all(paths, of=type(self).__name__)
        self._is_one_file = len(self._paths) == 1

    @abc.abstractmethod
    def open_reader(self, path: str) -> RecordReader:
        """Return a reader of the records of a file."""

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._paths)

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return self._paths

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a part of the files. This shards a worker's copy."""
        del sequential_slice  # Whole files are distributed in both cases.
        if self._is_one_file and (sl.step or 1) > 1:
            raise ValueError(
                f"Cannot slice `IterDataset` source. {type(self).__name__} reads one file,"
                f" {self._paths[0]!r}, which cannot be shared by {sl.step} workers. Use one"
                " worker, several files, or the source with random access:"
                f" `{type(self).__name__.replace('IterDataset', 'DataSource')}`."
            )
        self._paths = self._paths[sl]

    def open(self) -> DatasetIterator[T]:
        return FilesIterator(self)


class FilesIterator(StageIterator[T]):
    """A position in the files of a dataset."""

    def __init__(self, dataset: FilesIterDataset[T]) -> None:
        super().__init__()
        self._dataset = dataset
        self._files = dataset.paths
        self._closed = False
        self._reader: RecordReader | None = None
        self._stand_at(0, START)

    def _stand_at(self, file: int, position: Position) -> None:
        self._file, self._begin = file, position
        self._records: list[T] = []
        self._positions: list[Position] = []
        self._next = 0

    def __next__(self) -> T:
        if self._next == len(self._records):
            self._read()
        record = self._records[self._next]
        self._next += 1
        return record

    def take(self, count: int) -> list[T]:
        if self._next == len(self._records):
            try:
                self._read()
            except StopIteration:
                return []
        records = self._records[self._next : self._next + count]
        self._next += len(records)
        return records

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        self._next -= count

    def pass_over(self, count: int) -> None:
        self._next += count

    @property
    def moves_at_end(self) -> bool:
        return False

    def _position(self) -> Position:
        return self._positions[self._next - 1] if self._next else self._begin

    def _where_last(self) -> tuple[str, int]:
        """Return the file of the last record, and how many come before it there, for `Origin`."""
        before = self._positions[self._next - 2] if self._next > 1 else self._begin
        return self._files[self._file], before.line

    def _read(self) -> None:
        """Read more records; raise StopIteration if there are none."""
        if self._closed:
            raise closed_error()
        file, position = self._file, self._position()
        while file < len(self._files):
            if self._reader is None:
                self._reader = self._dataset.open_reader(self._files[file])
                if position != START:
                    self._reader.seek(position)
            try:
                records, positions = self._reader.take()
            except Exception:
                self._stand_at(file, self._reader.tell())
                raise
            if records:
                self._stand_at(file, position)
                self._records, self._positions = records, positions
                return
            if file == len(self._files) - 1:
                break
            self._drop_reader()
            file, position = file + 1, START
        raise StopIteration

    def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def get_state(self) -> State:
        position = self._position()
        return {"file": self._file, "offset": position.offset, "line": position.line}

    def check_state(self, state: State) -> None:
        file = number_of(state, "file", self)
        number_of(state, "offset", self)
        number_of(state, "line", self)
        if file and file >= len(self._files):
            raise wrong_state(self, f"it is in file {file}, but there are {len(self._files)}")

    def go_to(self, state: State) -> None:
        file = operator.index(state["file"])
        position = Position(operator.index(state["offset"]), operator.index(state["line"]))
        if file != self._file:
            self._drop_reader()
        self._stand_at(file, position)
        if self._closed or (position == START and self._reader is None):
            return
        if self._reader is None:
            self._reader = self._dataset.open_reader(self._files[file])
        self._reader.seek(position)
        if not self._reader.is_at_record():
            raise wrong_state(
                self, f"no record of {self._files[file]!r} starts at byte {position.offset}"
            )

    def close(self) -> None:
        self._closed = True
        self._stand_at(self._file, self._position())
        self._drop_reader()
