"""Files with random access, on disk or in an object store."""

import errno
import io
import os
import stat
from collections.abc import Sequence
from typing import Protocol

from wholegrain._core.types import Indices
from wholegrain.sources import _remote
from wholegrain.sources._cached import RemoteObject, Run
from wholegrain.sources._errors import UnreadableFileError, unreadable


def check_file(path: str) -> os.stat_result:
    """Return the `os.stat` result of a local file, or raise if it is not a regular file.

    A library that opens a pipe would block until another process writes to it.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from error
    _check_mode(path, found)
    return found


def _check_mode(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise unreadable(
            path,
            OSError(
                errno.EISDIR,
                "It is a folder; pass the files in it, with a pattern such as 'folder/*'",
            ),
        )
    if not stat.S_ISREG(found.st_mode):
        problem = "It is a pipe, a socket or a device; records are read from files"
        raise UnreadableFileError(errno.ESPIPE, problem, path)


class RandomFile(Protocol):
    """A file that several threads may read at once."""

    path: str
    size: int

    def read(self, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, or fewer at the end of the file."""
        ...

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return several parts of the file."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class LocalFile:
    """A file on disk, read at given positions."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        # Opening a pipe would block until another process writes to it.
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            self._fd = os.open(path, flags)
        except OSError as error:
            raise unreadable(path, error) from error
        found = self.stat()
        _check_mode(path, found)
        self.size = found.st_size

    def stat(self) -> os.stat_result:
        """Return the current `os.stat` result of the file."""
        return os.fstat(self._fd)

    def read(self, start: int, length: int) -> bytes:
        try:
            return self._read(start, length)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _read(self, start: int, length: int) -> bytes:
        data = os.pread(self._fd, length, start)
        if len(data) == length or start + len(data) >= self.size:
            return data
        # One call reads at most 2 GB, and may be interrupted.
        parts = [data]
        done = len(data)
        while done < length and (data := os.pread(self._fd, length - done, start + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._fd

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        return [self.read(start, length) for start, length in zip(starts, lengths, strict=True)]

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RemoteFile:
    """An object in a store."""

    def __init__(self, url: str) -> None:
        self.path = url
        self._object = RemoteObject(url)
        self.size = self._object.size
        self.tag = self._object.tag  # as in `ObjectInfo`

    def read(self, start: int, length: int) -> bytes:
        return self.read_ranges([start], [length])[0]

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        pairs = zip(starts, lengths, strict=True)
        stops = [min(start + length, self.size) for start, length in pairs]
        return self._object.read_ranges(starts, stops)

    def runs(self, starts: Indices, stops: Indices) -> tuple[list[Run], Indices]:
        """Return memory that contains parts, as `RemoteObject.runs` does."""
        return self._object.runs(starts, stops)

    def close(self) -> None:
        """Do nothing: connections belong to the store."""


def open_file(path: str) -> LocalFile | RemoteFile:
    """Open the file or the object at `path`."""
    return RemoteFile(path) if _remote.is_remote(path) else LocalFile(path)


def read_all(path: str) -> bytes:
    """Return the content of the file or the object at `path`."""
    file = open_file(path)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


class FileStream(io.RawIOBase):
    """A file with a position, for libraries that need `read`, `seek` and `tell`."""

    def __init__(self, file: LocalFile | RemoteFile) -> None:
        super().__init__()
        self.file = file
        self._position = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return self.file.path

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.file.size}[whence]
        if base + offset < 0:
            raise ValueError(f"Position {base + offset} is before the start of the file.")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = max(0, self.file.size - self._position)
        data = self.file.read(self._position, size)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: "io.BufferedIOBase | bytearray | memoryview") -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
