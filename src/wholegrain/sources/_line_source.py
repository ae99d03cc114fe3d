"""Sources of text files: rows found by an index, and parsed when they are read."""

import functools
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._core.types import Indices
from wholegrain.sources import _index, _paths
from wholegrain.sources._content import Content, Scan, open_content
from wholegrain.sources._errors import CorruptFileError, DataFileError, check_memory
from wholegrain.sources._files import LocalFile, RemoteFile, open_file
from wholegrain.sources._handles import Handles
from wholegrain.sources._identity import Identity, changed
from wholegrain.sources._index import Arrays, Index
from wholegrain.sources._line_scan import Rows
from wholegrain.sources._progress import Progress, open_all
from wholegrain.sources._sharded import ShardedDataSource

T = TypeVar("T")

_NEWLINE = 10


class _Indexed(NamedTuple):
    """What is known about a file from its index; the index itself if it is in memory only."""

    identity: Identity
    place: str | None
    records: int
    unsaved: Index | None


class IndexedDataSource(ShardedDataSource[T]):
    """Base class of sources whose files have an index in a side-car file.

    A subclass defines what an index contains, and how to read records with it.
    """

    _kind: ClassVar[str]  # of the index; a part of the side-car's name
    _settings: dict[str, Any]  # what the index depends on

    def __init__(self, paths: _paths.Paths) -> None:
        self._files = _paths.expand_all(paths, of=type(self).__name__)
        self._prepare()
        found = open_all(self._describe, self._files)
        self._identities = [each.identity for each in found]
        self._places = [each.place for each in found]
        self._unsaved = {n: each.unsaved for n, each in enumerate(found) if each.unsaved}
        self._set_counts([each.records for each in found])

    def _prepare(self) -> None:
        # Both the file and its index may be mapped.
        self._handles: Handles[Any] = Handles(self._open, _close)

    @abstractmethod
    def _build(self, scan: Scan, path: str) -> tuple[dict[str, Any], Arrays]:
        """Return the facts and arrays of an index."""

    @abstractmethod
    def _count(self, index: Index) -> int:
        """Return the number of records."""

    @abstractmethod
    def _opened(self, path: str, content: Content, index: Index) -> Any:
        """Return the handle of an open file."""

    def _describe(self, path: str) -> "_Indexed":
        # Only of the files that are read, indexes stay open.
        index = self._obtain(path)
        unsaved = index if index.place is None else None
        return _Indexed(index.identity, index.place, self._count(index), unsaved)

    def _obtain(self, path: str) -> Index:
        return _index.obtain(path, self._kind, self._settings, self._build_index)

    def _build_index(
        self, file: LocalFile | RemoteFile, progress: Progress
    ) -> tuple[dict[str, Any], Arrays]:
        scan = Scan(file, Identity.of(file), progress)
        try:
            facts, arrays = self._build(scan, file.path)
        finally:
            scan.close()
        return {**facts, **scan.facts}, {**arrays, **scan.arrays}

    def _open(self, number: int) -> Any:
        path = self._files[number]
        file = open_file(path)
        expected = self._identities[number]
        try:
            if not Identity.of(file).is_of(expected):
                raise changed(path)
            index = self._unsaved.get(number) or self._obtain(path)
            if not index.identity.is_of(expected):
                raise changed(path)
        except BaseException:
            file.close()
            raise
        opened = self._opened(path, open_content(file, index), index)
        opened.num_files = 1 + index.is_mapped
        return opened

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._files)

    @property
    def index_files(self) -> list[str | None]:
        """The side-car file of each file; None if it could not be saved."""
        return list(self._places)

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return self._files

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_paths.summary(self._files)}, len={len(self)})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_handles"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


def _close(opened: Any) -> None:
    """Do nothing: files are closed when nothing refers to them."""


class OpenRows:
    """An open text file: returns rows as bytes, with their line breaks.

    Args:
        path: The file.
        content: Its content.
        index: Where the rows are.
        header: How many of them are not records.
    """

    def __init__(self, path: str, content: Content, index: Index, header: int = 0) -> None:
        rows = Rows(index.arrays["starts"], index.arrays["extra"])
        self.path = path
        self._place = index.place
        self.count = len(rows.starts) - 1
        self._content = content
        self._rows = rows
        self._starts = rows.starts.item  # quicker than an index for one number
        self._header = header

    def read(self, positions: Indices, header: int | None = None) -> list[bytes]:
        """Return rows; raise if the file has been changed in place since it was opened."""
        starts, rows = self._rows.starts, positions + (self._header if header is None else header)
        begins, ends = starts[rows], starts[rows + 1]
        # With the line break before it, except for the first row.
        has_break = rows > 0
        lengths = ends - begins + has_break
        if len(lengths):
            check_memory(int(lengths.max()), self.path, ", the longest row")
        found = self._content.read_ranges((begins - has_break).tolist(), lengths.tolist())
        last = len(starts) - 2
        for number, (row, data) in enumerate(zip(rows.tolist(), found, strict=True)):
            if (row and data[:1] != b"\n") or (data[-1:] != b"\n" and row != last):
                raise self._stale()
            if row:
                found[number] = data[1:]
        return found

    def read_one(self, position: int) -> bytes:
        """Return one row, as `read` does."""
        row = position + self._header
        start, end = self._starts(row), self._starts(row + 1)
        check_memory(end - start, self.path, ", a row")
        if not row:
            return self._content.read(start, end - start)
        data = self._content.read(start - 1, end - start + 1)
        if data[0] != _NEWLINE or (data[-1] != _NEWLINE and row != self.count - 1):
            raise self._stale()
        return data[1:]

    def _stale(self) -> Exception:
        """Return the error for a file that is not the one that was indexed.

        It was changed in place, with the same length and modification time, in a part that the
        checksum does not cover. So its index has to be built again.
        """
        if self._place is not None:
            with suppress_errors(OSError):
                os.unlink(self._place)
        return changed(self.path)

    def line(self, row: int, header: int | None = None) -> int:
        """Return the number of a record's line, counted from 1."""
        return self._rows.line(row + (self._header if header is None else header))


class LineDataSource(IndexedDataSource[T]):
    """Base class of sources with a record for each row of a text file."""

    _parser: Callable[[bytes], Any]  # Returns the record of a row, or raises a ValueError.

    def _count(self, index: Index) -> int:
        return len(index.arrays["starts"]) - 1

    def _opened(self, path: str, content: Content, index: Index) -> OpenRows:
        return OpenRows(path, content, index)

    def _read_one(self, file: int, position: int) -> T:
        opened: OpenRows = self._handles.get(file)
        row = opened.read_one(position)
        try:
            return self._parser(row)  # type: ignore[no-any-return]
        except Exception as error:
            if is_interruption(error):
                raise
            raise bad_row(opened.path, opened.line(position), error) from error

    def _read_many(self, file: int, positions: Indices) -> Sequence[T]:
        opened: OpenRows = self._handles.get(file)
        parse, records = self._parser, []
        for row in opened.read(positions):
            try:
                records.append(parse(row))
            except Exception as error:
                if is_interruption(error):
                    raise
                line = opened.line(int(positions[len(records)]))
                raise bad_row(opened.path, line, error) from error
        return records


def bad_row(path: str, line: int, error: Exception) -> Exception:
    """Return the error for a row that cannot be parsed."""
    if isinstance(error, (DataFileError, MemoryError)):
        return error
    return CorruptFileError(f"{path!r}, line {line}: {_problem(error)}")


@functools.singledispatch
def _problem(error: Exception) -> str:
    return str(error)


@_problem.register
def _(error: UnicodeDecodeError) -> str:
    return f"It is not valid UTF-8 ({error.reason} at byte {error.start} of the line)."


@_problem.register
def _(error: RecursionError) -> str:
    return "It is nested too deeply."
