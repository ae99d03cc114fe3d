"""Arrow files and Hugging Face datasets as a source: rows by index."""

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core.types import Indices
from wholegrain.sources._errors import FolderError
from wholegrain.sources._optional import require
from wholegrain.sources._rows import RowsDataSource

if TYPE_CHECKING:
    from wholegrain.sources._arrow_reader import ArrowFileReader


class ArrowDataSource(RowsDataSource):
    """The rows of Arrow files, or of a Hugging Face dataset, as dicts, in any order.

    Local files are memory-mapped: nothing is read until it is needed, and all processes share the
    page cache. Both of Arrow's formats, files and streams, are supported.

    Values of files are the same as in `ParquetDataSource`: numpy scalars, `str`, `bytes`, None,
    and arrays for lists. Rows of a Hugging Face dataset are not converted.

    Args:
        data: A file, or a sequence of files; each a path, a glob pattern, a sharded name, or the
            address of objects in a store, `"s3://..."`. Or a `datasets.Dataset`.
        columns: The columns to read, in that order; by default all.
        cache_bytes: How much memory the batches of compressed or remote files may take in each
            process.

    Example:
        >>> source = ArrowDataSource("data/*.arrow", columns=["text"])
        >>> source = ArrowDataSource(datasets.load_dataset("imdb", split="train"))
    """

    def __init__(
        self, data: Any, columns: Sequence[str] | None = None, cache_bytes: int = 256 << 20
    ) -> None:
        super().__init__(columns, cache_bytes)
        self._dataset: Any = None
        if isinstance(data, (str, bytes, os.PathLike, list, tuple)):
            require("pyarrow", extra="arrow", purpose=f"`{type(self).__name__}`")
            _check_no_dataset(data)
            self._use_files(data)
        elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and _has_rows(data):
            self._dataset = data if columns is None else data.select_columns(self._columns)
            self._set_counts([len(data)])
        else:
            raise TypeError(
                f"`{type(self).__name__}` needs paths or a Hugging Face dataset with rows in any"
                f" order, but got {type(data).__name__}. Load a dataset without `streaming=True`,"
                " and pass one of its splits."
            )

    def _open(self, file: int) -> "ArrowFileReader":
        # It imports pyarrow, which this module does not need.
        from wholegrain.sources._arrow_reader import ArrowFileReader

        return ArrowFileReader(self._files[file], self._columns)

    def _identity(self) -> str:
        if self._dataset is None:
            return super()._identity()
        fingerprint = getattr(self._dataset, "_fingerprint", None)
        return f"{type(self._dataset).__name__}, fingerprint={fingerprint!r}"

    def _read_one(self, file: int, position: int) -> dict[str, Any]:
        if self._dataset is None:
            return super()._read_one(file, position)
        row: dict[str, Any] = self._dataset[position]
        return row

    def _read_many(self, file: int, positions: Indices) -> Sequence[dict[str, Any]]:
        if self._dataset is None:
            return super()._read_many(file, positions)
        if not hasattr(self._dataset, "__getitems__"):
            return [self._dataset[position] for position in positions.tolist()]
        rows: Sequence[dict[str, Any]] = self._dataset.__getitems__(positions.tolist())
        return rows


def _has_rows(data: Any) -> bool:
    """Return whether it is a dataset, and not a dict of splits, which has columns too."""
    return hasattr(data, "column_names") and not isinstance(data, dict)


def _check_no_dataset(data: Any) -> None:
    if isinstance(data, (str, bytes, os.PathLike)):
        folder = os.fsdecode(data)
        names = ("state.json", "dataset_dict.json")
        if any(os.path.exists(os.path.join(folder, name)) for name in names):
            raise FolderError(
                errno.EISDIR,
                "It is a folder that a Hugging Face dataset was saved to; pass"
                " `datasets.load_from_disk(...)` of it",
                folder,
            )
