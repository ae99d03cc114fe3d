"""Bagz files, read with the `bagz` library."""

import os
from collections.abc import Sequence
from typing import Any

from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._errors import CorruptFileError, explaining
from wholegrain.sources._files import check_file
from wholegrain.sources._handles import Handles
from wholegrain.sources._mapping import shrunk
from wholegrain.sources._optional import require
from wholegrain.sources._progress import open_all
from wholegrain.sources._sharded import ShardedDataSource


class BagzDataSource(ShardedDataSource[bytes]):
    """The records of Bagz files, as bytes, in the order of `paths`.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, or a sharded name
            such as `"train@16.bagz"`, whose shards are concatenated.

    Example:
        >>> source = BagzDataSource("data/train@16.bagz")
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1).map(parse)
    """

    def __init__(self, paths: _paths.Paths) -> None:
        self._library = _library()
        self._files = _paths.expand_all(paths, of=type(self).__name__)
        self._readers: Handles[_Reader] = Handles(self._open, _close)
        self._set_counts(open_all(self._count, range(len(self._files))))

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._files)

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return self._files

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_paths.summary(self._files)}, len={len(self)})"

    def _count(self, file: int) -> int:
        return len(self._open_file(self._files[file]).records)

    def _open(self, file: int) -> "_Reader":
        reader = self._open_file(self._files[file])
        expected = self._ends[file] - (self._ends[file - 1] if file else 0)
        if len(reader.records) != expected:
            raise CorruptFileError(
                f"{self._files[file]!r} has changed since the source was created: it has"
                f" {len(reader.records)} records, but had {expected}. Create the source"
                " again."
            )
        return reader

    def _open_file(self, path: str) -> "_Reader":
        if "," in path:
            raise ValueError(f"The `bagz` library cannot open {path!r}: its name contains a comma.")
        found = None if _paths.is_remote(path) else check_file(path)
        with explaining(path, "a Bagz file"):
            return _Reader(path, self._library.Reader(path), found)

    def _read_one(self, file: int, position: int) -> bytes:
        reader = self._readers.get(file)
        reader.check()
        try:
            record: bytes = reader.records[position]
        except Exception as error:
            if is_interruption(error):
                raise
            raise CorruptFileError(
                f"Record {position} of {self._files[file]!r} cannot be read; the file may be"
                f" damaged, or have changed since it was opened. The reader's error: {error}"
            ) from error
        return record

    def _read_many(self, file: int, positions: Indices) -> Sequence[bytes]:
        # The library reads many records more slowly in one call than one by one.
        reader = self._readers.get(file)
        reader.check()
        records = reader.records
        try:
            return [records[position] for position in positions.tolist()]
        except Exception as error:
            if is_interruption(error):
                raise
            return [self._read_one(file, position) for position in positions.tolist()]

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self._files, "ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._library = _library()
        self._files = state["files"]
        self._ends = state["ends"]
        self._readers = Handles(self._open, _close)


class _Reader:
    """An open file, which the library has memory-mapped."""

    def __init__(self, path: str, records: Any, found: os.stat_result | None) -> None:
        self._path = path
        self.records = records
        self._found = found

    def check(self) -> None:
        """Raise if the file was truncated: accessing the missing part would be a SIGBUS.

        There is still a race if the file is truncated between this check and the read.
        """
        found = self._found
        if found is not None:
            with suppress_errors(OSError):  # It was removed, so it cannot be truncated.
                now = os.stat(self._path)
                if os.path.samestat(now, found) and now.st_size < found.st_size:
                    raise shrunk(self._path, found.st_size, now.st_size)


def _library() -> Any:
    return require("bagz", extra="bagz", purpose="`BagzDataSource`")


def _close(reader: _Reader) -> None:
    """Do nothing: the file is closed when nothing refers to the reader."""
