"""Reads the row groups of one Parquet file in order, the next one while rows are returned."""

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from wholegrain._core import tree
from wholegrain._core.interruption import is_interruption
from wholegrain._core.stack import stack
from wholegrain.sources._arrow import Form, Values, common_forms, plain, to_values
from wholegrain.sources._arrow_texts import TextColumn, text_columns
from wholegrain.sources._parquet_reader import ParquetFileReader
from wholegrain.sources._row_maker import Row, make_rows

# Smaller row groups are read faster than they are handed to another thread. Of larger ones there
# should not be two in memory.
_LEAST_BYTES_AHEAD = 100_000
_MOST_BYTES_AHEAD = 64_000_000
# A table, and the columns of it that need no conversion.
_Decoded = tuple[Any, dict[str, TextColumn]]
# A wait of this length is longer than waking up a thread takes.
_LONG_S = 0.001


class Column(Protocol):
    """A column of a row group."""

    @property
    def values(self) -> Values:
        """All values of the column."""
        ...

    def values_from(self, start: int) -> Iterable[Any]:
        """Return the values from `start` on, one by one."""
        ...


class ArrayColumn:
    """A column whose values are in an array."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def values_from(self, start: int) -> Iterable[Any]:
        """Return the values from `start` on, one by one."""
        return self.values[start:]


class RowGroup:
    """The decoded columns of a row group, from which rows are built on demand."""

    def __init__(self, columns: Mapping[str, Column], num_rows: int) -> None:
        self._columns = columns
        self.num_rows = num_rows

    @functools.cached_property
    def _arrays(self) -> dict[str, Values]:
        return {name: column.values for name, column in self._columns.items()}

    def batch(self, start: int, stop: int) -> Row | None:
        """Return rows `start` to `stop - 1` stacked as by `batch`; None if that is impossible."""
        try:
            batch: Row = tree.map_leaves(lambda values: _stacked(values[start:stop]), self._arrays)
        except Exception as error:
            if is_interruption(error):
                raise
            return None  # Stacking the rows one by one raises a better error.
        return batch

    def rows_from(self, start: int) -> Callable[[int], list[Row]]:
        """Return a function that builds up to a given number of further rows, from `start` on."""
        names = tuple(self._columns)
        columns = [column.values_from(start) for column in self._columns.values()]
        values: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
        if not columns:
            values = iter([()] * (self.num_rows - start))
        return lambda count: make_rows(names, itertools.islice(values, count))


def _stacked(values: Values) -> Any:
    # Users may change the values of a batch, but those of the file are used again.
    return stack(values.tolist()) if values.dtype.kind == "O" else values.copy()


class SequentialReader:
    """A Parquet file that is read in order.

    Args:
        path: A file, or the URL of an object in a store.
        read_kwargs: More arguments of `pyarrow.parquet.ParquetFile`.
    """

    def __init__(self, path: str, **read_kwargs: Any) -> None:
        self._reader = ParquetFileReader(path, **read_kwargs)
        self.piece_rows = self._reader.piece_rows
        self._has_given = False  # Whether a row group was returned, so that reading ahead pays.
        self._pool: ThreadPoolExecutor | None = None
        # The process, the row group that is read ahead, and its future.
        self._ahead: tuple[int, int, Future[_Decoded]] | None = None

    @functools.cached_property
    def _forms(self) -> Mapping[str, Form]:
        return common_forms([self._reader])

    def row_group(self, piece: int) -> RowGroup:
        """Return the rows of a row group."""
        forms = self._forms  # Slow the first time; the thread may decode meanwhile.
        table, texts = self._decoded(piece)
        columns: dict[str, Column] = {}
        with self._reader.explained(f", row group {piece}"):
            for name in self._reader.types:
                columns[name] = texts.get(name) or ArrayColumn(
                    to_values(plain(table.column(name)), forms.get(name, Form.AS_IS))
                )
        self._has_given = True
        return RowGroup(columns, table.num_rows)

    def _decoded(self, piece: int) -> _Decoded:
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[:2] != (os.getpid(), piece):
            return _decode(self._reader, piece)
        decoded = ahead[2]
        asked = time.monotonic()
        try:
            return decoded.result()
        finally:
            # If decoding is slower than the consumer, let Arrow use more threads for it.
            is_late = time.monotonic() - asked > _LONG_S
            self._reader.use_threads = is_late and self._has_given

    def start_reading(self, piece: int) -> None:
        """Read a row group in the background, if that is worth it."""
        if self._ahead is not None and self._ahead[:2] == (os.getpid(), piece):
            return
        if not _LEAST_BYTES_AHEAD <= self._reader.piece_nbytes[piece] <= _MOST_BYTES_AHEAD:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="wholegrain-parquet")
            self._reader.use_threads = not self._has_given
        started = threading.Event()
        decoded = self._pool.submit(_decode, self._reader, piece, started)
        # Until this thread waits, it holds the GIL for up to 5 ms and keeps the other from
        # starting, and by then all of the rows may be gone.
        started.wait()
        self._ahead = (os.getpid(), piece, decoded)

    def close(self) -> None:
        """Close the file."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._reader.close()


def _decode(
    reader: ParquetFileReader, piece: int, started: threading.Event | None = None
) -> _Decoded:
    if started is not None:
        started.set()
    table = reader.read_whole(piece)
    return table, text_columns(table)
