"""Parquet files as a source: rows by position."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wholegrain.sources import _paths
from wholegrain.sources._optional import require
from wholegrain.sources._rows import RowsDataSource

if TYPE_CHECKING:
    from wholegrain.sources._parquet_reader import ParquetFileReader


class ParquetDataSource(RowsDataSource):
    """The rows of Parquet files, as dicts, in any order.

    A file stores its rows in row groups, and a row can only be read with its whole group. Groups
    that were decoded are kept, up to `cache_bytes`; shuffling within a window, or files with
    small row groups, make the most of them.

    Values are numpy scalars, `str`, `bytes`, None, and arrays for lists. In integer columns in
    which a value is missing in any of the files all values are floats, and the missing ones NaN;
    if some of these integers are too large to be floats without loss they stay integers, and the
    missing ones are None.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, a sharded name such
            as `"train.parquet@16"`, or the address of objects in a store, `"s3://..."`.
        columns: The columns to read, in that order; by default all.
        cache_bytes: How much memory decoded row groups may take, in each process.
        read_kwargs: More arguments of `pyarrow.parquet.ParquetFile`.

    Example:
        >>> source = ParquetDataSource("data/*.parquet", columns=["text", "label"])
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1)
    """

    def __init__(
        self,
        paths: _paths.Paths,
        columns: Sequence[str] | None = None,
        cache_bytes: int = 256 << 20,
        **read_kwargs: Any,
    ) -> None:
        require("pyarrow", extra="parquet", purpose=f"`{type(self).__name__}`")
        super().__init__(columns, cache_bytes)
        self._read_kwargs = read_kwargs
        self._use_files(paths)

    def _open(self, file: int) -> "ParquetFileReader":
        # It needs pyarrow, which importing this module does not.
        from wholegrain.sources._parquet_reader import ParquetFileReader

        # Rows are read from many threads already: Arrow need not start more.
        return ParquetFileReader(
            self._files[file], self._columns, use_threads=False, **self._read_kwargs
        )
