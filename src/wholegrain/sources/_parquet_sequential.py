"""The row groups of one Parquet file in order, the next one read while rows are handed out."""

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from wholegrain._core import tree
from wholegrain._core.rows import Row
from wholegrain._core.stack import stack
from wholegrain.sources._arrow import Form, Values, common_forms, plain, to_values
from wholegrain.sources._parquet_reader import ParquetFileReader

# Smaller row groups are read sooner than they are given to another thread, and of larger ones
# there should not be two in memory.
_LEAST_BYTES_AHEAD = 100_000
_MOST_BYTES_AHEAD = 64_000_000
# Waiting so long is more than waking up takes.
_LONG_S = 0.001


class RowGroup:
    """The decoded columns of a row group, of which rows are made as they are needed."""

    def __init__(self, names: tuple[str, ...], values: list[Values], num_rows: int) -> None:
        self._names = names
        self._values = values
        self.num_rows = num_rows

    def batch(self, start: int, stop: int) -> Row | None:
        """Return rows `start` to `stop - 1` stacked as `batch` stacks them; None if it cannot."""
        columns = dict(zip(self._names, self._values, strict=True))
        try:
            batch: Row = tree.map_leaves(lambda column: _stacked(column[start:stop]), columns)
        except Exception:
            return None  # The rows themselves show what is wrong with them.
        return batch

    def behind(self, start: int) -> tuple[tuple[str, ...], tuple[Values, ...], int]:
        """Return the names, the columns and the number of the rows from `start` on."""
        values = tuple(column[start:] for column in self._values)
        return self._names, values, self.num_rows - start


def _stacked(values: Values) -> Any:
    # Of a batch users may change the values; those of a file are used again.
    return stack(values.tolist()) if values.dtype.kind == "O" else values.copy()


class SequentialReader:
    """A Parquet file that is read in order.

    Args:
        path: A file, or the address of an object in a store.
        read_kwargs: More arguments of `pyarrow.parquet.ParquetFile`.
    """

    def __init__(self, path: str, **read_kwargs: Any) -> None:
        self._reader = ParquetFileReader(path, **read_kwargs)
        self.piece_rows = self._reader.piece_rows
        self._forms: Mapping[str, Form] = common_forms([self._reader])
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, int, Future[Any]] | None = None  # with the process it belongs to

    def row_group(self, piece: int) -> RowGroup:
        """Return the rows of a row group."""
        table = self._table(piece)
        names = tuple(self._reader.types)
        with self._reader.explained(f", row group {piece}"):
            values = [
                to_values(plain(table.column(name)), self._forms.get(name, Form.AS_IS))
                for name in names
            ]
        return RowGroup(names, values, table.num_rows)

    def _table(self, piece: int) -> Any:
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[:2] != (os.getpid(), piece):
            return self._reader.read_whole(piece)
        table = ahead[2]
        asked = time.monotonic()
        try:
            return table.result()
        finally:
            # Where decoding takes longer than handing out, Arrow may use more threads for it.
            self._reader.use_threads = time.monotonic() - asked > _LONG_S

    def start_reading(self, piece: int) -> None:
        """Read a row group in the background, if that pays."""
        if self._ahead is not None and self._ahead[:2] == (os.getpid(), piece):
            return
        if not _LEAST_BYTES_AHEAD <= self._reader.piece_nbytes[piece] <= _MOST_BYTES_AHEAD:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="wholegrain-parquet")
            self._reader.use_threads = False
        started = threading.Event()
        table = self._pool.submit(_read, self._reader, piece, started)
        # A thread that does not wait keeps the other from starting for 5 ms, in which all of
        # the rows may be gone.
        started.wait()
        self._ahead = (os.getpid(), piece, table)

    def close(self) -> None:
        """Close the file."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._reader.close()


def _read(reader: ParquetFileReader, piece: int, started: threading.Event) -> Any:
    started.set()
    return reader.read_whole(piece)
