"""ParquetIterDataset: the rows of Parquet files, in order."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.kinds import IterNode
from wholegrain._graph.nodes import InterleaveIterDataset
from wholegrain._graph.stage import Stage
from wholegrain.sources import _paths
from wholegrain.sources._errors import missing_file
from wholegrain.sources._optional import require

if TYPE_CHECKING:
    from wholegrain.sources._parquet_reader import ParquetFileReader, RowGroup

Row = dict[str, Any]

# How many files are read in turn.
_CYCLE_LENGTH = 16
# Rows made at a time, so that those of a large row group are not all in memory at once.
_BLOCK_ROWS = 1024


class ParquetIterDataset(IterNode[Row]):
    """The rows of Parquet files, as dicts, in order.

    Of several files, up to 16 are read in turn, a row of each. In columns of integers or bools
    in which a value is missing somewhere in the file, all values are floats, or Python bools, and
    the missing ones NaN or None.

    With `mp_prefetch` each worker reads its share of the files; a single file is shared by its
    row groups.

    Args:
        path: A file, or a sequence of files; each a path, a glob pattern, or the address of
            objects in a store, `"s3://..."`.
        read_kwargs: More arguments of `pyarrow.parquet.ParquetFile`, such as `memory_map=True`.

    Example:
        >>> ds = ParquetIterDataset("data/*.parquet").map(tokenize).batch(32)
    """

    _stage = Stage(fixed=("paths",), free=("read_kwargs",))

    def __init__(
        self,
        path: str | bytes | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        **read_kwargs: Any,
    ) -> None:
        super().__init__()
        if "columns" in read_kwargs:
            raise TypeError(
                "`ParquetIterDataset` got `columns`, but it reads whole rows. Choose columns by"
                " `map`, or with `wholegrain.sources.ParquetDataSource(paths, columns=...)`."
            )
        is_empty = not isinstance(path, (str, bytes, os.PathLike)) and len(path) == 0
        self._paths = [] if is_empty else _paths.expand_all(path, of=type(self).__name__)
        self._read_kwargs = read_kwargs
        # Which of all row groups to read, if it is not all of them and however many there are.
        self._group_slices: tuple[slice, ...] = ()
        self._is_one_file = len(self._paths) == 1

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a part of the files: how a worker's copy gets its share.

        Of a single file it is a part of the row groups, if `sl` has a step.
        """
        del sequential_slice  # Files are dealt out one by one in any case.
        if self._is_one_file and sl.step not in (None, 1):
            self._group_slices = (*self._group_slices, sl)
        else:
            self._paths = self._paths[sl]

    def open(self) -> DatasetIterator[Row]:
        if len(self._paths) == 1:
            return ParquetDatasetIterator(self._paths[0], self._read_kwargs, self._group_slices)
        return self.interleaved().open()

    def interleaved(self) -> InterleaveIterDataset[Row]:
        """Return the same rows as those of one dataset for each file, read in turn."""
        files = [ParquetIterDataset(path, **self._read_kwargs) for path in self._paths]
        return InterleaveIterDataset(files, cycle_length=_CYCLE_LENGTH)


class ParquetDatasetIterator(DatasetIterator[Row]):
    """A position in a Parquet file, which is opened for the first row."""

    def __init__(
        self, path: str, read_kwargs: dict[str, Any], group_slices: Sequence[slice] = ()
    ) -> None:
        super().__init__()
        if not _paths.is_remote(path) and not os.path.exists(path):
            raise missing_file(path)
        self._path = path
        self._read_kwargs = read_kwargs
        self._group_slices = group_slices
        self._reader: ParquetFileReader | None = None
        self._closed = False
        # The next row is row `_index` of a row group, or the first of the next one that has any.
        self._group = _sliced(range(sys.maxsize), group_slices)[0]
        self._index = 0
        self._rows: RowGroup | None = None  # of the row group
        self._block: list[Row] = []
        self._at = 0  # of the next row in the block

    def __next__(self) -> Row:
        if self._at == len(self._block) and not self._next_block():
            raise StopIteration
        row = self._block[self._at]
        self._at += 1
        self._index += 1
        return row

    def take(self, count: int) -> list[Row]:
        if self._at == len(self._block) and not self._next_block():
            return []
        rows = self._block[self._at : self._at + count]
        self._at += len(rows)
        self._index += len(rows)
        return rows

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        # Made anew, because a transformation that failed may have changed them.
        self._index -= count
        self._drop_block()

    def _drop_block(self) -> None:
        self._block, self._at = [], 0

    def _next_block(self) -> bool:
        """Go on to rows that follow; return whether there are any."""
        if self._closed:
            raise closed_error()
        if self._reader is None:
            self._reader = self._open()
        if self._rows is None:
            if not self._groups:
                return False
            self._rows = self._reader.row_group(self._group, self._forms)
        if self._index >= self._rows.num_rows:
            later = [group for group in self._groups if group > self._group]
            group = next((group for group in later if self._reader.piece_rows[group]), None)
            if group is None:
                return False
            self._rows = None  # before the next is in memory
            self._rows = self._reader.row_group(group, self._forms)
            self._group, self._index = group, 0
        self._block = self._rows.rows(self._index, self._index + _BLOCK_ROWS)
        self._at = 0
        return True

    def _open(self) -> ParquetFileReader:
        require("pyarrow", extra="parquet", purpose="`ParquetIterDataset`")
        # It needs pyarrow, which importing this module does not.
        from wholegrain.sources._parquet_reader import ParquetFileReader

        reader = ParquetFileReader(self._path, **self._read_kwargs)
        self._groups = _sliced(range(len(reader.piece_rows)), self._group_slices)
        self._forms = reader.forms()
        return reader

    def get_state(self) -> State:
        return {"row_group": self._group, "index_within_row_group": self._index}

    def set_state(self, state: State) -> None:
        group = operator.index(state["row_group"])
        index = operator.index(state["index_within_row_group"])
        if group != self._group:
            self._rows = None
        self._group, self._index = group, index
        self._drop_block()

    def close(self) -> None:
        self._closed = True
        self._rows = None
        self._drop_block()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _sliced(groups: range, slices: Sequence[slice]) -> range:
    for part in slices:
        groups = groups[part]
    return groups
