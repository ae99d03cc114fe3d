"""Reads the row groups of one Parquet file."""

import itertools
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain.sources import _remote
from wholegrain.sources._arrow import (
    LARGEST_EXACT,
    ArrowFileError,
    Form,
    chosen_types,
    has_nulls,
    is_exact,
    pa,
    plain,
)
from wholegrain.sources._arrow_columns import Columns
from wholegrain.sources._errors import CorruptFileError, explaining
from wholegrain.sources._files import FileStream, check_file, open_file
from wholegrain.sources._optional import require
from wholegrain.sources._parquet_footer import (
    ColumnStatistics,
    Statistics,
    as_file,
    read_footer,
    statistics_of,
)

_pq: Any = require("pyarrow.parquet", extra="parquet", purpose="Reading Parquet files")


class ParquetFileReader:
    """A Parquet file, read a row group at a time. Several threads may read at once.

    Args:
        path: A file, or the URL of an object in a store.
        columns: The columns to read, in that order; by default all.
        use_threads: Whether Arrow may decode columns in threads of its own.
        read_kwargs: More arguments of `pyarrow.parquet.ParquetFile`.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None = None,
        *,
        use_threads: bool = True,
        **read_kwargs: Any,
    ) -> None:
        self.path = path
        self._columns = None if columns is None else list(columns)
        self.use_threads = use_threads
        self._read_kwargs = read_kwargs
        self._lock = threading.Lock()
        self._metadata: Any = None
        self._identity: tuple[int, ...] | None = None  # Only of a local file.
        self._known: Statistics | None = None
        self._idle = [self._open()]
        with self.explained():
            self._metadata = metadata = self._idle[0].metadata
            schema = self._idle[0].schema_arrow
            groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
            self.piece_rows: list[int] = [group.num_rows for group in groups]
            self.piece_nbytes: list[int] = [group.total_byte_size for group in groups]
        self.types = chosen_types(path, schema, columns)
        self._leaves = _first_leaves(schema)
        if any(count < 0 for count in self.piece_rows):
            raise CorruptFileError(f"{path!r}: a row group has a negative number of rows.")

    def columns(self, piece: int, forms: Mapping[str, Form]) -> Columns:
        """Return the rows of a row group, for access in any order."""
        table = self.read_whole(piece)
        with self.explained(f", row group {piece}"):
            columns = [plain(table.column(name)) for name in self.types]
            return Columns(
                list(self.types), columns, [forms.get(name, Form.AS_IS) for name in self.types]
            )

    def has_nulls(self, piece: int, name: str) -> bool:
        """Return whether a value of a column, or an item of its lists, is null."""
        kind = self.types[name]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            # The null count includes empty lists. To distinguish them from null items, the whole
            # column would have to be read first, so these lists are not converted.
            return False
        statistics = self._statistics(piece, name)
        if statistics is not None and statistics.null_count is not None:
            return statistics.null_count > 0
        return has_nulls(self._column(piece, name))

    def is_exact(self, piece: int, name: str) -> bool:
        """Return whether all integers of a column can be converted to floats without loss."""
        statistics = self._statistics(piece, name)
        if statistics is not None and pa.types.is_integer(self.types[name]):
            signed = bool(pa.types.is_signed_integer(self.types[name]))
            bounds = statistics.integers(signed=signed)
            if bounds is not None:
                low, high = bounds
                return low >= -LARGEST_EXACT and high <= LARGEST_EXACT
        return is_exact(self._column(piece, name))

    def _column(self, piece: int, name: str) -> Any:
        table = self._read(piece, [name])
        with self.explained(f", row group {piece}"):
            return plain(table.column(0))

    def _statistics(self, piece: int, name: str) -> ColumnStatistics | None:
        """Return the statistics of a column in a row group, or None."""
        if self._known is None:
            self._known = self._read_statistics()
        return self._known[piece][self._leaves[name]] if self._known else None

    def _read_statistics(self) -> Statistics:
        with self.explained():
            if self._identity is not None:
                self._check_unchanged()
            file = open_file(self.path)
            try:
                footer = read_footer(file)
            finally:
                file.close()
        found = read_statistics(footer) or []
        # If the number of columns differs, the statistics belong to something else.
        width = self._metadata.num_columns
        if [len(columns) for columns in found] == [width] * len(self.piece_rows):
            return found
        return []

    def close(self) -> None:
        """Close the file. A later read opens it again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for file in idle:
            file.close()

    def read_whole(self, piece: int) -> Any:
        """Return all columns of a row group, as a table."""
        table = self._read(piece)
        if table.num_rows != self.piece_rows[piece]:
            raise CorruptFileError(
                f"{self.path!r}, row group {piece}: it should have {self.piece_rows[piece]} rows,"
                f" but has {table.num_rows}."
            )
        return table

    def _read(self, piece: int, columns: Sequence[str] | None = None) -> Any:
        """Return a row group, or some columns of it, as a table."""
        columns = self._columns if columns is None else columns
        # Each thread uses a reader of its own, because Arrow does not promise thread safety.
        with self._lock:
            file = self._idle.pop() if self._idle else None
        if file is None:
            file = self._open()
        try:
            with self.explained(f", row group {piece}"):
                return file.read_row_group(piece, columns=columns, use_threads=self.use_threads)
        finally:
            with self._lock:
                self._idle.append(file)

    def _open(self) -> Any:
        kwargs: dict[str, Any] = {"metadata": self._metadata, **self._read_kwargs}
        with self.explained():
            if not _remote.is_remote(self.path):
                self._check_unchanged()
                return _pq.ParquetFile(self.path, **kwargs)
            stream = pa.PythonFile(FileStream(open_file(self.path)), mode="r")
            # A few large reads instead of one for each column of each row group.
            return _pq.ParquetFile(stream, **{"pre_buffer": True, **kwargs})

    def _check_unchanged(self) -> None:
        """Raise if the file is not the one that was opened first."""
        found = check_file(self.path)
        identity = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        if self._identity is not None and identity != self._identity:
            raise CorruptFileError(
                f"{self.path!r} was replaced or changed while it was open. Make the source again."
            )
        self._identity = identity

    def explained(self, where: str = "") -> AbstractContextManager[None]:
        """Add the name of the file to errors of Arrow."""
        return explaining(self.path, "Parquet", where, ArrowFileError)


def read_statistics(footer: bytes | None) -> Statistics | None:
    """Return the statistics in a footer; None if Arrow or we cannot read it."""
    if footer is None:
        return None
    try:
        _pq.ParquetFile(pa.BufferReader(as_file(footer)))
    except Exception as error:  # It is not the footer that Arrow has read before.
        if is_interruption(error):
            raise
        return None
    return statistics_of(footer)


def _first_leaves(schema: Any) -> dict[str, int]:
    """Return the first physical column of each column."""
    counts = [_count_leaves(field.type) for field in schema]
    return dict(zip(schema.names, itertools.accumulate(counts, initial=0), strict=False))


def _count_leaves(kind: Any) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _count_leaves(kind.storage_type)
    if pa.types.is_map(kind):
        return _count_leaves(kind.key_type) + _count_leaves(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_count_leaves(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_nested(kind) and hasattr(kind, "value_type"):
        return _count_leaves(kind.value_type)
    return 1
