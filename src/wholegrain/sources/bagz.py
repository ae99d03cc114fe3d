"""Bagz files, read with the `bagz` library."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._errors import CorruptFileError, missing_file
from wholegrain.sources._handles import Handles
from wholegrain.sources._optional import require
from wholegrain.sources._sharded import ShardedDataSource

_MOST_THREADS = 16


class BagzDataSource(ShardedDataSource[bytes]):
    """The records of Bagz files, as bytes, in the order of `paths`.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, or a sharded name
            such as `"train@16.bagz"`, whose shards follow each other.

    Example:
        >>> source = BagzDataSource("data/train@16.bagz")
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1).map(parse)
    """

    def __init__(self, paths: _paths.Paths) -> None:
        self._library = _library()
        self._files = _paths.expand_all(paths, of=type(self).__name__)
        self._readers: Handles[Any] = Handles(self._open, _close)
        with ThreadPoolExecutor(min(_MOST_THREADS, len(self._files))) as pool:
            self._set_counts(list(pool.map(self._count, range(len(self._files)))))

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._files)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_paths.summary(self._files)}, len={len(self)})"

    def _count(self, file: int) -> int:
        return len(self._open(file))

    def _open(self, file: int) -> Any:
        path = self._files[file]
        if "," in path:
            raise ValueError(f"The `bagz` library cannot open {path!r}: its name has a comma.")
        try:
            return self._library.Reader(path)
        except FileNotFoundError as error:
            raise missing_file(path) from error
        except (ValueError, RuntimeError, OSError) as error:
            raise CorruptFileError(
                f"{path!r} cannot be read as a Bagz file; it may be cut off or of another format."
                f" The reader says: {error}"
            ) from error

    def _read_one(self, file: int, position: int) -> bytes:
        try:
            record: bytes = self._readers.get(file)[position]
        except (ValueError, RuntimeError, OSError, IndexError) as error:
            raise CorruptFileError(
                f"Record {position} of {self._files[file]!r} cannot be read; the file may be"
                f" damaged, or have changed since it was opened. The reader says: {error}"
            ) from error
        return record

    def _read_many(self, file: int, positions: Indices) -> Sequence[bytes]:
        # The library's own reads of many records are slower than as many single ones.
        reader = self._readers.get(file)
        try:
            return [reader[position] for position in positions.tolist()]
        except (ValueError, RuntimeError, OSError, IndexError):
            return [self._read_one(file, position) for position in positions.tolist()]

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self._files, "ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._library = _library()
        self._files = state["files"]
        self._ends = state["ends"]
        self._readers = Handles(self._open, _close)


def _library() -> Any:
    return require("bagz", extra="bagz", purpose="`BagzDataSource`")


def _close(reader: Any) -> None:
    """Do nothing: the file is closed when nothing refers to the reader."""
