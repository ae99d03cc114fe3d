"""A folder of files, each of which is a record."""

import glob
import hashlib
import operator
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import SupportsIndex

from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._errors import missing_file, out_of_range, unreadable
from wholegrain.sources._files import read_all
from wholegrain.sources._sharded import as_indices
from wholegrain.sources.protocol import RandomAccessDataSource

_MOST_THREADS = 16


class FolderDataSource(RandomAccessDataSource[bytes]):
    """The files under `root` that match `pattern`, as bytes, in the order of their names.

    The folder is listed once, when the source is created. Files that appear later are not part of
    it, so two runs over one source see the same elements.

    Args:
        root: A folder, or its address in an object store, `"s3://..."`.
        pattern: A glob pattern, relative to `root`. `**/` matches folders at any depth.

    Example:
        >>> source = FolderDataSource("images", "**/*.png")
        >>> images = wg.MapDataset.source(source).map(decode)
        >>> labels = [name.split("/")[0] for name in source.names]
    """

    def __init__(self, root: str | os.PathLike[str], pattern: str = "*") -> None:
        self._root = _paths.to_text(root).rstrip("/") or "/"
        self._pattern = pattern
        self._names = self._list()

    def _list(self) -> list[str]:
        if _paths.is_remote(self._root):
            found = _paths.matching_objects(f"{self._root}/{self._pattern}")
            names = [name.removeprefix(f"{self._root}/") for name in found]
        else:
            if not os.path.isdir(self._root):
                raise missing_file(self._root, "No such folder")
            found = glob.glob(self._pattern, root_dir=self._root, recursive=True)
            names = [name for name in found if os.path.isfile(os.path.join(self._root, name))]
        if not names:
            raise missing_file(f"{self._root}/{self._pattern}", "No file matches the pattern")
        return sorted(name.replace(os.sep, "/") for name in names)

    @property
    def names(self) -> list[str]:
        """The names of the files, relative to `root`, in the order of the records."""
        return list(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: SupportsIndex) -> bytes:
        position = operator.index(index)
        if not 0 <= position < len(self._names):
            raise out_of_range(position, len(self._names), repr(self))
        path = f"{self._root}/{self._names[position]}"
        if _paths.is_remote(path):
            return read_all(path)
        try:
            with open(path, "rb", buffering=0) as file:
                return file.readall()
        except FileNotFoundError as error:
            raise missing_file(path, "The file was removed after it was listed") from error
        except OSError as error:
            raise unreadable(path, error) from error

    def __getitems__(self, indices: Sequence[SupportsIndex] | Indices) -> list[bytes]:
        """Return the files at `indices`, in that order."""
        positions = as_indices(indices, len(self._names), repr(self)).tolist()
        if len(positions) > 1 and _paths.is_remote(self._root):
            with ThreadPoolExecutor(min(_MOST_THREADS, len(positions))) as pool:
                return list(pool.map(self.__getitem__, positions))
        return [self[position] for position in positions]

    def _where(self, index: int) -> tuple[str, None]:
        """Return the file of a record, for `Origin`."""
        return f"{self._root}/{self._names[index]}", None

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return [f"{self._root}/{self._pattern}"]

    @property
    def _data_paths(self) -> list[str]:
        """The files whose content the records are. Asking a store about each would take long."""
        if _paths.is_remote(self._root):
            return []
        return [f"{self._root}/{name}" for name in self._names]

    def __repr__(self) -> str:
        digest = hashlib.sha1("\0".join(self._names).encode(), usedforsecurity=False)
        return (
            f"{type(self).__name__}({self._root!r}, {self._pattern!r}, len={len(self)},"
            f" hash_of_names={digest.hexdigest()})"
        )
