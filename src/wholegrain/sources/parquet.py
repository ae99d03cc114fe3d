"""Parquet files as a source of rows by position."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wholegrain.sources import _paths
from wholegrain.sources._optional import require
from wholegrain.sources._rows import RowsDataSource

if TYPE_CHECKING:
    from wholegrain.sources._parquet_reader import ParquetFileReader


class ParquetDataSource(RowsDataSource):
    """The rows of Parquet files, as dicts, in any order.

    A file stores its rows in row groups, and a row can only be read with its whole group. Decoded
    groups are cached, up to `cache_bytes`. The cache works best for small row groups and for
    shuffling within a window.

    Values are numpy scalars, `str`, `bytes`, None, and arrays for lists. If an integer column has a
    null in any of the files, all its values are floats, and nulls are NaN. If some of these
    integers cannot be converted to floats without loss, they stay integers, and nulls are None.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, a sharded name such
            as `"train.parquet@16"`, or the URL of objects in a store, `"s3://..."`.
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
        # Imported here because it needs pyarrow.
        from wholegrain.sources._parquet_reader import ParquetFileReader

        # Many threads already read rows, so Arrow need not start more.
        return ParquetFileReader(
            self._files[file], self._columns, use_threads=False, **self._read_kwargs
        )
