"""ParquetIterDataset: the rows of Parquet files, in order."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, StageIterator, closed_error
from wholegrain._graph.kinds import IterNode
from wholegrain._graph.nodes import InterleaveIterDataset
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import number_of, wrong_state
from wholegrain.sources import _paths
from wholegrain.sources._files import check_file
from wholegrain.sources._optional import require
from wholegrain.sources._row_maker import Row

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer
    from wholegrain.sources._parquet_sequential import RowGroup, SequentialReader

# How many files are interleaved.
_CYCLE_LENGTH = 16

# How many rows are built together: enough to amortise a call, few enough for the cache.
_BLOCK = 64


class ParquetIterDataset(IterNode[Row]):
    """The rows of Parquet files, as dicts, in order.

    If there are several files, up to 16 are interleaved, one row of each. If a column of integers
    or bools has a null anywhere in the file, all its values are floats, or Python bools, and nulls
    are NaN or None.

    While the rows of one row group are returned, the next group is read if it has up to 64 MB. If
    `batch` follows without a function in between, batches are sliced from the columns, and no rows
    are built.

    With `mp_prefetch` each worker reads its share of the files. A single file is split by row
    groups.

    Args:
        path: A file, or a sequence of files; each a path, a glob pattern, or the URL of objects in
            a store, `"s3://..."`.
        read_kwargs: More arguments of `pyarrow.parquet.ParquetFile`, such as `memory_map=True`.

    Example:
        >>> ds = ParquetIterDataset("data/*.parquet").map(tokenize).batch(32)
    """

    checkpoint = CheckpointSpec(fixed=("paths",), free=("read_kwargs",))

    def __init__(
        self,
        path: str | bytes | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        **read_kwargs: Any,
    ) -> None:
        super().__init__()
        if "columns" in read_kwargs:
            raise TypeError(
                "`ParquetIterDataset` got `columns`, but it reads whole rows. Select columns with"
                " `map`, or with `wholegrain.sources.ParquetDataSource(paths, columns=...)`."
            )
        is_empty = not isinstance(path, (str, bytes, os.PathLike)) and len(path) == 0
        self._paths = [] if is_empty else _paths.expand_all(path, of=type(self).__name__)
        self._read_kwargs = read_kwargs
        # The row groups to read, as slices of all of them, whose number is not known yet.
        self._group_slices: tuple[slice, ...] = ()
        self._is_one_file = len(self._paths) == 1

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return self._paths

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a part of the files. This shards a worker's copy.

        For a single file it is a part of the row groups, if `sl` has a step.
        """
        del sequential_slice  # Whole files are distributed in both cases.
        if self._is_one_file and sl.step not in (None, 1):
            self._group_slices = (*self._group_slices, sl)
        else:
            self._paths = self._paths[sl]

    def open(self) -> DatasetIterator[Row]:
        if len(self._paths) == 1:
            return ParquetDatasetIterator(self._paths[0], self._read_kwargs, self._group_slices)
        return self.interleaved().open()

    def _traced(self, tracer: Tracer) -> Any:
        if len(self._paths) == 1:
            return tracer.iterable(self)
        return tracer.made(self.interleaved(), tracer.name(self))

    def interleaved(self) -> InterleaveIterDataset[Row]:
        """Return the same rows as an interleaving of one dataset per file."""
        files = [ParquetIterDataset(path, **self._read_kwargs) for path in self._paths]
        return InterleaveIterDataset(files, cycle_length=_CYCLE_LENGTH)


class ParquetDatasetIterator(StageIterator[Row]):
    """A position in a Parquet file, which is opened when the first row is read."""

    def __init__(
        self, path: str, read_kwargs: dict[str, Any], group_slices: Sequence[slice] = ()
    ) -> None:
        super().__init__()
        if not _paths.is_remote(path):
            check_file(path)
        self._path = path
        self._read_kwargs = read_kwargs
        self._group_slices = group_slices
        self._reader: SequentialReader | None = None
        self._closed = False
        self._row_group: RowGroup | None = None  # Row group `_group`, once it has been read.
        self._first_group = _sliced(range(sys.maxsize), group_slices)[0]
        self._stand_at(self._first_group, 0)

    def _stand_at(self, group: int, index: int) -> None:
        # The next row is row `index` of this row group, or the first row of a later group.
        self._group, self._end = group, index
        self._block: list[Row] = []  # Rows up to `_end`, in reverse order.
        self._make_rows: Callable[[int], list[Row]] = _no_rows  # Builds the rows after `_end`.

    @property
    def _index(self) -> int:
        return self._end - len(self._block)

    def __next__(self) -> Row:
        if not self._block:
            self._make_block()
        return self._block.pop()

    def take(self, count: int) -> list[Row]:
        if not self._block:
            try:
                self._make_block()
            except StopIteration:
                return []
        count = min(count, len(self._block))
        rows = self._block[len(self._block) - count :]
        del self._block[len(self._block) - count :]
        rows.reverse()
        return rows

    def _make_block(self) -> None:
        """Build more rows; raise StopIteration if there are none."""
        block = self._make_rows(_BLOCK)
        if not block:
            self._read_rows()
            block = self._make_rows(_BLOCK)
        self._end += len(block)
        block.reverse()
        self._block = block

    @property
    def takes_back(self) -> bool:
        return True

    @property
    def moves_at_end(self) -> bool:
        return False

    @property
    def reads_ahead(self) -> bool:
        return True  # By row groups. Reading ahead single rows as well would only cost time.

    def put_back(self, count: int) -> None:
        self._move(-count)

    def pass_over(self, count: int) -> None:
        self._move(count)

    def _move(self, count: int) -> None:
        self._stand_at(self._group, self._index + count)

    def take_stacked(self, count: int) -> Row | None:
        """Return the next `count` rows stacked from columns; None if that is not possible."""
        stop = self._index + count
        if self._row_group is None or stop > self._row_group.num_rows:
            return None
        batch = self._row_group.batch(self._index, stop)
        if batch is not None:
            self._move(count)
        return batch

    def _read_rows(self) -> None:
        """Move to the rows that follow; raise StopIteration if there are none."""
        if self._closed:
            raise closed_error()
        if self._reader is None:
            self._reader = self._open()
            if self._following(self._group) is not None and self._group in self._groups:
                self._reader.start_reading(self._group)
        group, index = self._group, self._index
        if self._row_group is None:
            if not self._groups:
                raise StopIteration
            self._row_group = self._reader.row_group(group)
        if index >= self._row_group.num_rows:
            following = self._following(group)
            if following is None:
                raise StopIteration
            self._row_group = None  # Free its memory before the next one is read.
            self._row_group = self._reader.row_group(following)
            group, index = following, 0
        self._stand_at(group, index)
        self._make_rows = self._row_group.rows_from(index)
        following = self._following(group)
        if following is not None:
            self._reader.start_reading(following)

    def _where_last(self) -> tuple[str, int]:
        """Return the file, and the number of the last row there, for `Origin`."""
        assert self._reader is not None
        return self._path, sum(self._reader.piece_rows[: self._group]) + self._index - 1

    def _following(self, group: int) -> int | None:
        """Return the next row group that has rows."""
        assert self._reader is not None
        sizes = self._reader.piece_rows
        return next((later for later in self._groups if later > group and sizes[later]), None)

    def _open(self) -> SequentialReader:
        require("pyarrow", extra="parquet", purpose="`ParquetIterDataset`")
        # Imported here because it needs pyarrow.
        from wholegrain.sources._parquet_sequential import SequentialReader

        reader = SequentialReader(self._path, **self._read_kwargs)
        self._groups = _sliced(range(len(reader.piece_rows)), self._group_slices)
        return reader

    def get_state(self) -> State:
        return {"row_group": self._group, "index_within_row_group": self._index}

    def check_state(self, state: State) -> None:
        group = number_of(state, "row_group", self)
        index = number_of(state, "index_within_row_group", self)
        if self._closed or (group, index) == (self._first_group, 0):
            return
        if self._reader is None:
            self._reader = self._open()
        rows = self._reader.piece_rows
        if group not in self._groups or index > rows[group]:
            raise wrong_state(
                self, f"there is no row {index} in {self._path!r}, row group {group} of {len(rows)}"
            )

    def go_to(self, state: State) -> None:
        group = operator.index(state["row_group"])
        index = operator.index(state["index_within_row_group"])
        if group != self._group:
            self._row_group = None
        self._stand_at(group, index)

    def close(self) -> None:
        self._closed = True
        self._row_group = None
        self._stand_at(self._group, self._index)
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _no_rows(count: int) -> list[Row]:
    return []


def _sliced(groups: range, slices: Sequence[slice]) -> range:
    for part in slices:
        groups = groups[part]
    return groups
