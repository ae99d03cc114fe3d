"""Files of which any part can be read at any time, on disk or in a store."""

import io
import os
from collections.abc import Sequence
from typing import Protocol

from wholegrain.sources import _remote
from wholegrain.sources._errors import missing_file


class RandomFile(Protocol):
    """A file that several threads may read from at once."""

    path: str
    size: int

    def read(self, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, or fewer where the file ends."""
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
        try:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError as error:
            raise missing_file(path) from error
        self.size = os.fstat(self._fd).st_size

    def read(self, start: int, length: int) -> bytes:
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
        self._store, self._key = _remote.locate(url)
        self.size = _remote.size(url)

    def read(self, start: int, length: int) -> bytes:
        stop = min(start + length, self.size)
        return self._store.read(self._key, start, stop) if start < stop else b""

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        # Stores take an empty range for a mistake, or for all of the object.
        filled = [(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        filled = [(start, stop) for start, stop in filled if start < stop]
        if not filled:
            return [b""] * len(starts)
        found = self._store.read_ranges(self._key, *map(list, zip(*filled, strict=True)))
        parts = iter(found)
        return [next(parts) if length else b"" for length in lengths]

    def close(self) -> None:
        """Do nothing: connections belong to the store."""


def open_file(path: str) -> LocalFile | RemoteFile:
    """Open the file or the object at `path`."""
    return RemoteFile(path) if _remote.is_remote(path) else LocalFile(path)


class FileStream(io.RawIOBase):
    """A `RandomFile` with a position, for libraries that want to read, seek and tell."""

    def __init__(self, file: RandomFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.path

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise ValueError(f"Position {base + offset} is before the start of the file.")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = max(0, self._file.size - self._position)
        data = self._file.read(self._position, size)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: "io.BufferedIOBase | bytearray | memoryview") -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
