"""Rows of files that store them in pieces: Parquet's row groups, Arrow's batches."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._cache import BoundedCache
from wholegrain.sources._errors import CorruptFileError, explaining
from wholegrain.sources._handles import Handles
from wholegrain.sources._progress import open_all
from wholegrain.sources._sharded import ShardedDataSource

if TYPE_CHECKING:
    from wholegrain.sources._arrow import Form
    from wholegrain.sources._arrow_columns import Columns


class PieceReader(Protocol):
    """An open file whose rows are stored in pieces. Several threads may read at once."""

    path: str
    types: dict[str, Any]  # the columns to read, in the order in which rows have them
    piece_rows: list[int]

    def has_nulls(self, piece: int, name: str) -> bool:
        """Return whether a value of a column, or an item of its lists, is missing."""
        ...

    def is_exact(self, piece: int, name: str) -> bool:
        """Return whether all integers of a column are floats without loss."""
        ...

    def columns(self, piece: int, forms: "Mapping[str, Form]") -> "Columns":
        """Return the rows of a piece, to be taken in any order."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class RowsDataSource(ShardedDataSource[dict[str, Any]]):
    """Base of the sources of rows.

    A format says how a file is opened; pieces that were decoded are kept for the next read.
    """

    def __init__(self, columns: Sequence[str] | None, cache_bytes: int) -> None:
        if isinstance(columns, str):
            raise TypeError(f"`columns` has to be a sequence of names, but got {columns!r}.")
        self._columns = None if columns is None else list(columns)
        self._cache_bytes = cache_bytes
        self._files: list[str] = []
        self._prepare()

    def _prepare(self) -> None:
        self._readers = Handles(self._open_again, _close, self._forget_pieces)
        self._pieces: BoundedCache[Columns] = BoundedCache(self._cache_bytes)

    @abstractmethod
    def _open(self, file: int) -> PieceReader:
        """Open a file."""

    def _use_files(self, paths: Any) -> None:
        """Open all files, to learn how many rows they have and of which types."""
        # It needs pyarrow, which importing this module does not.
        from wholegrain.sources._arrow import check_same_columns, common_forms

        self._files = _paths.expand_all(paths, of=type(self).__name__)
        readers = open_all(self._open, range(len(self._files)))
        check_same_columns(readers)
        self._forms = common_forms(readers)
        self._piece_ends = [np.cumsum(reader.piece_rows, dtype=np.int64) for reader in readers]
        self._set_counts([int(ends[-1]) if len(ends) else 0 for ends in self._piece_ends])
        for reader in readers:
            reader.close()

    def _open_again(self, file: int) -> PieceReader:
        """Open a file whose pieces are known, in this process or in another."""
        reader = self._open(file)
        if not np.array_equal(np.cumsum(reader.piece_rows, dtype=np.int64), self._piece_ends[file]):
            raise CorruptFileError(
                f"{self._files[file]!r} has changed since the source was made: its rows are at"
                " other places now. Make the source again."
            )
        return reader

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._files)

    @property
    def _shown_paths(self) -> list[str]:
        """Which files reports name."""
        return self._files

    def __repr__(self) -> str:
        columns = "" if self._columns is None else f", columns={self._columns}"
        return f"{type(self).__name__}({self._identity()}{columns}, len={len(self)})"

    def _identity(self) -> str:
        return _paths.summary(self._files)

    def _piece(self, file: int, piece: int) -> "Columns":
        def decode() -> "tuple[Columns, int]":
            columns = self._readers.get(file).columns(piece, self._forms)
            return columns, columns.nbytes

        return self._pieces.get((file, piece), decode)

    def _forget_pieces(self, file: int) -> None:
        """Drop the pieces that are views of a mapped file, which keep it open."""
        self._pieces.forget(lambda key, nbytes: key[0] == file and not nbytes)

    def _read_one(self, file: int, position: int) -> dict[str, Any]:
        ends = self._piece_ends[file]
        piece = int(ends.searchsorted(position, side="right"))
        columns = self._piece(file, piece)
        try:
            return columns.row(position - int(ends[piece - 1]) if piece else position)
        except Exception as error:
            self._raise_explained(error, file)

    def _read_many(self, file: int, positions: Indices) -> Sequence[dict[str, Any]]:
        ends = self._piece_ends[file]
        found: list[dict[str, Any]] = []
        while len(found) < len(positions):
            start = len(found)
            piece = int(ends.searchsorted(positions[start], side="right"))
            stop = int(positions.searchsorted(ends[piece]))
            first = ends[piece - 1] if piece else 0
            columns = self._piece(file, piece)
            try:
                rows = columns.rows(positions[start:stop] - first)
                if len(rows) != stop - start:
                    raise ValueError(f"{stop - start} rows were expected, but {len(rows)} found.")
            except Exception as error:
                self._raise_explained(error, file)
            found.extend(rows)
        return found

    def _raise_explained(self, error: Exception, file: int) -> NoReturn:
        # It needs pyarrow, which importing this module does not.
        from wholegrain.sources._arrow import ArrowFileError

        with explaining(self._files[file], "rows", kind=ArrowFileError):
            raise error

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_readers", "_pieces")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


def _close(reader: PieceReader) -> None:
    reader.close()
