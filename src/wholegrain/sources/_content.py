"""The content of files with random access: of plain files, and of compressed ones.

A compressed file with many small frames is read a frame at a time. One with large frames, such as
what the gzip and zstd commands write, is decompressed once into a file in the cache folder.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources._cache import BoundedCache
from wholegrain.sources._cache_folder import cache_folder, digest, locked, write_whole
from wholegrain.sources._errors import DataFileError, UnreadableFileError
from wholegrain.sources._files import LocalFile, RemoteFile
from wholegrain.sources._frames import Frame, Inflation, LargeFrame, compression_of, inflated
from wholegrain.sources._identity import Identity, changed
from wholegrain.sources._index import Arrays, Index
from wholegrain.sources._mapping import MappedFile, shrunk
from wholegrain.sources._progress import Progress

_BLOCK_BYTES = 1 << 22
_HEAD_BYTES = 8
# Reading a record decompresses its frame, so frames must not be large.
_LARGEST_FRAME = 1 << 24
_CACHED_BYTES = 1 << 26
# How much is read at once if headers are looked for.
_WINDOW = 1 << 16
_REMOTE_WINDOW = 1 << 22


class Content(Protocol):
    """Bytes with random access that several threads may read at once."""

    def read(self, start: int, length: int) -> bytes:
        """Return a part, or raise if it is not completely there."""
        ...

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return several parts, or raise if one is not completely there."""
        ...


class MappedContent:
    """A memory-mapped local file."""

    def __init__(self, file: LocalFile) -> None:
        self._file = MappedFile(file)

    def read(self, start: int, length: int) -> bytes:
        self._file.check()
        data = self._file.memory[start : start + length]
        if len(data) != length:
            raise changed(self._file.path)
        return data

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        self._file.check()
        memory, size = self._file.memory, self._file.size
        parts = [
            memory[start : start + length] for start, length in zip(starts, lengths, strict=True)
        ]
        return _complete(parts, lengths, self._file.path, size)


class RemoteContent:
    """An object in a store, whose parts are fetched concurrently."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file

    def read(self, start: int, length: int) -> bytes:
        return self.read_ranges([start], [length])[0]

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        parts = self._file.read_ranges(starts, lengths)
        return _complete(parts, lengths, self._file.path, self._file.size)


def _complete(parts: list[bytes], lengths: Sequence[int], path: str, size: int) -> list[bytes]:
    for part, length in zip(parts, lengths, strict=True):
        if len(part) != length:
            raise shrunk(path, size, size - length + len(part))
    return parts


# Of all sources of a process.
_frames: BoundedCache[bytes] = BoundedCache(_CACHED_BYTES)
_numbers = itertools.count()


class _FramedContent:
    """The content of a compressed file, whose frames are decompressed when they are needed."""

    def __init__(self, file: LocalFile | RemoteFile, compression: str, frames: Indices) -> None:
        self._file = file
        self._compression = compression
        self._frames = frames  # a row per frame, as in `Frame`
        self._number = next(_numbers)

    def read_ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        return [self.read(start, length) for start, length in zip(starts, lengths, strict=True)]

    def read(self, start: int, length: int) -> bytes:
        number = int(np.searchsorted(self._frames[:, 2], start, side="right")) - 1
        parts: list[bytes] = []
        while length > 0 and 0 <= number < len(self._frames):
            content_start = int(self._frames[number, 2])
            part = self._frame(number)[start - content_start : start - content_start + length]
            parts.append(part)
            start, length, number = start + len(part), length - len(part), number + 1
        if length > 0:
            raise changed(self._file.path)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _frame(self, number: int) -> bytes:
        def make() -> tuple[bytes, int]:
            frame = Frame(*self._frames[number].tolist())
            data = self._file.read(frame.start, frame.length)
            content = inflated(self._file.path, self._compression, data, frame.content_length)
            return content, len(content)

        return _frames.get((self._number, number), make)


def blocks(file: LocalFile | RemoteFile, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the bytes of a plain file, many at a time."""
    position = 0
    for block in blocks_from(file, 0, _BLOCK_BYTES):
        position += len(block)
        yield block
        if progress is not None:
            progress.at(position)


def blocks_from(file: LocalFile | RemoteFile, position: int, size: int) -> Iterator[bytes]:
    """Yield the bytes of a plain file from a position on."""
    while position < file.size and (block := file.read(position, size)):
        position += len(block)
        yield block


class Scan:
    """Reads the content of a file once, in order, to build an index of it.

    Attributes:
        facts: How to open the content later.
        arrays: The frames of a compressed file.
    """

    def __init__(self, file: LocalFile | RemoteFile, identity: Identity, progress: Progress):
        self._file = file
        self._progress = progress
        self._compression = compression_of(file.read(0, _HEAD_BYTES))
        self._plain: LocalFile | None = None  # the decompressed copy
        self._identity = identity
        self._framed: _FramedContent | None = None
        self._window, self._window_start = b"", 0
        self.facts: dict[str, Any] = {"compression": self._compression, "copied": False}
        self.arrays: Arrays = {}
        if self._compression is not None:
            self._find_frames()

    def _find_frames(self) -> None:
        """Decide how a compressed file will be read."""
        assert self._compression is not None
        inflation = Inflation(self._file, self._compression, _LARGEST_FRAME)
        try:
            for _ in inflation:
                self._progress.at(inflation.position)
        except LargeFrame:
            self.facts["copied"] = True
            self._plain = decompressed_copy(self._file, self._compression, self._identity)
        frames = np.array(inflation.frames, np.int64).reshape(-1, 4)
        if self._plain is None:
            self.arrays = {"frames": frames.ravel()}

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content."""
        if self._plain is not None:
            return blocks(self._plain)
        if self._compression is None:
            return blocks(self._file, self._progress)
        return _joined(Inflation(self._file, self._compression))

    @property
    def content_size(self) -> int:
        """The length of the content."""
        if self._compression is None or self._plain is not None:
            return (self._plain or self._file).size
        frames = self.arrays["frames"].reshape(-1, 4)
        return int(frames[-1, 2:].sum()) if len(frames) else 0

    def read(self, start: int, length: int) -> bytes:
        """Return a part of the content, or less at its end. Parts should be read in order."""
        at = start - self._window_start
        if not 0 <= at <= len(self._window) - length:
            size = _REMOTE_WINDOW if isinstance(self._file, RemoteFile) else _WINDOW
            self._window, self._window_start = self._read(start, max(length, size)), start
            self._progress.at(start)
            at = 0
        return self._window[at : at + length]

    def _read(self, start: int, length: int) -> bytes:
        if self._compression is None or self._plain is not None:
            return (self._plain or self._file).read(start, length)
        stop = min(start + length, self.content_size)
        if start >= stop:
            return b""
        if self._framed is None:
            frames = self.arrays["frames"].reshape(-1, 4)
            self._framed = _FramedContent(self._file, self._compression, frames)
        return self._framed.read(start, stop - start)

    def close(self) -> None:
        """Close the copy."""
        if self._plain is not None:
            self._plain.close()


def _joined(parts: Iterator[bytes] | Inflation) -> Iterator[bytes]:
    """Yield small parts together."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def open_content(file: LocalFile | RemoteFile, index: Index) -> Content:
    """Return the content of a file, read as its index says. It closes the file if it can."""
    compression = index.facts["compression"]
    if compression is not None and not index.facts["copied"]:
        return _FramedContent(file, compression, index.arrays["frames"].reshape(-1, 4))
    if compression is not None:
        with (
            contextlib.closing(file),
            contextlib.closing(decompressed_copy(file, compression, index.identity)) as copy,
        ):
            return MappedContent(copy)
    if isinstance(file, RemoteFile):
        return RemoteContent(file)
    with contextlib.closing(file):
        return MappedContent(file)


def decompressed_copy(
    file: LocalFile | RemoteFile,
    compression: str,
    identity: Identity,
    check: Callable[[], None] = lambda: None,
) -> LocalFile:
    """Return the decompressed copy of a file, and make it if there is none.

    Args:
        file: The compressed file.
        compression: "gzip" or "zstd".
        identity: Which file it is.
        check: Called before a copy is made.
    """
    folder = cache_folder()
    if folder is None:
        raise _no_copy(file.path, "there is no cache folder")
    name = os.path.abspath(file.path) if isinstance(file, LocalFile) else file.path
    path = os.path.join(folder, "content", digest(name, *identity))
    with contextlib.suppress(DataFileError):
        return LocalFile(path)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with locked(path, lambda: None):
            with contextlib.suppress(DataFileError):
                return LocalFile(path)
            check()
            write_whole(path, _content_of(file, compression))
    except DataFileError:
        raise
    except OSError as error:
        raise _no_copy(file.path, str(error)) from error
    return LocalFile(path)


def _content_of(file: LocalFile | RemoteFile, compression: str) -> Iterator[bytes]:
    progress = Progress(file.path, file.size, "Decompressing")
    inflation = Inflation(file, compression)
    for part in inflation:
        yield part
        progress.at(inflation.position)


def _no_copy(path: str, problem: str) -> UnreadableFileError:
    return UnreadableFileError(
        errno.EIO,
        f"It is compressed as a whole, so random access needs a decompressed copy, which cannot be"
        f" written ({problem}). Set WHOLEGRAIN_CACHE to a folder with enough space, decompress the"
        " file, compress it in small parts (with `bgzip`, or `pzstd`), or read it in order",
        path,
    )
