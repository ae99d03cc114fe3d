"""Compressed files as a sequence of frames, each of which can be decompressed alone.

A frame is a member of a gzip file, or a frame of a zstd file.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from wholegrain._core.interruption import is_interruption
from wholegrain.sources._errors import DataFileError, explained
from wholegrain.sources._files import LocalFile, RemoteFile
from wholegrain.sources._identity import changed
from wholegrain.sources._optional import require

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The first byte of the magic number of a skippable frame is 0x50 to 0x5f.
_SKIPPABLE = b"\x2a\x4d\x18"
_GZIP = 31  # zlib's number for a gzip header
# Decompressed at a time. A small input bounds the size of the output, and what is left of it at
# the end of a frame is copied.
_INPUT_BYTES = {"gzip": 1 << 15, "zstd": 1 << 13}
_READ_BYTES = 1 << 20
_REMOTE_READ_BYTES = 1 << 23


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file from its first bytes: "gzip", "zstd" or None."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(_ZSTD_MAGIC) or _is_skippable(head):
        return "zstd"
    return None


class Frame(NamedTuple):
    """A frame of a compressed file: where it is in the file, and in the content."""

    start: int
    length: int
    content_start: int
    content_length: int


class Inflation:
    """The content of a compressed file, in order.

    Args:
        file: The compressed file.
        compression: "gzip" or "zstd".
        largest: Raises `LargeFrame` when the content of a frame is longer.

    Attributes:
        frames: The frames whose ends were reached so far.
        position: How far the file was read.
    """

    def __init__(
        self, file: LocalFile | RemoteFile, compression: str, largest: int | None = None
    ) -> None:
        self._file = file
        self._compression = compression
        self._largest = largest
        self._new = _decompressors(compression)
        self._window, self._window_start = b"", 0
        self.frames: list[Frame] = []
        self.position = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            while not self._is_at_end():
                yield from self._content_of_frame()
        except Exception as error:
            if is_interruption(error):
                raise
            if isinstance(error, (DataFileError, LargeFrame, GeneratorExit)):
                raise
            raise damaged(self._file.path, self._compression, error) from error

    def _content_of_frame(self) -> Iterator[bytes]:
        start, step, length = self.position, _INPUT_BYTES[self._compression], 0
        before = (
            self.frames[-1].content_start + self.frames[-1].content_length if self.frames else 0
        )
        decompressor = self._new()
        while not decompressor.eof:
            part = self._read(step)
            if not part:
                raise EOFError("it ends within the compressed data")
            data = decompressor.decompress(part)
            unused = len(decompressor.unused_data) if decompressor.eof else 0
            self.position += len(part) - unused
            length += len(data)
            if self._largest is not None and length > self._largest:
                raise LargeFrame
            if data:
                yield data
        self.frames.append(Frame(start, self.position - start, before, length))

    def _is_at_end(self) -> bool:
        """Move over what is not content; return whether the file ends there."""
        if self._compression == "gzip":
            # Zeros may pad the end.
            while self.frames and (block := self._read(1 << 10)):
                zeros = len(block) - len(block.lstrip(b"\0"))
                self.position += zeros
                if zeros < len(block):
                    break
        else:
            while _is_skippable(head := self._read(8)):
                self.position += 8 + int.from_bytes(head[4:], "little")
                if len(head) < 8 or self.position > self._file.size:
                    raise EOFError("it ends within a skippable frame")
        return self.position >= self._file.size

    def _read(self, length: int) -> bytes:
        """Return the next bytes without moving; fewer at the end."""
        at = self.position - self._window_start
        if at < 0 or at + length > len(self._window):
            at_once = _READ_BYTES if isinstance(self._file, LocalFile) else _REMOTE_READ_BYTES
            self._window, self._window_start = (
                self._file.read(self.position, at_once),
                self.position,
            )
            at = 0
        return self._window[at : at + length]


class LargeFrame(Exception):
    """A frame is too large for random access within the compressed file."""


def _is_skippable(head: bytes) -> bool:
    return head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50


def _decompressors(compression: str) -> Callable[[], Any]:
    if compression == "gzip":
        return lambda: zlib.decompressobj(_GZIP)
    context = zstd().ZstdDecompressor()
    return lambda: context.decompressobj()


def zstd() -> Any:
    """Return the zstandard library, or raise an error that says what to install."""
    return require("zstandard", extra="zstd", purpose="Reading zstd files")


def inflated(path: str, compression: str, data: bytes, length: int) -> bytes:
    """Return the content of one frame.

    Args:
        path: The file, for errors.
        compression: "gzip" or "zstd".
        data: The frame.
        length: The length of its content.
    """
    try:
        if compression == "gzip":
            decompressor = zlib.decompressobj(_GZIP)
            content = decompressor.decompress(data, length + 1)
            is_whole = decompressor.eof
        else:
            decompressor = zstd().ZstdDecompressor().decompressobj()
            content = decompressor.decompress(data)
            is_whole = decompressor.eof
    except Exception as error:
        if is_interruption(error):
            raise
        raise damaged(path, compression, error) from error
    if len(content) != length or not is_whole:
        raise changed(path)
    return content


def damaged(path: str, compression: str, error: Exception) -> Exception:
    """Return the error for a compressed file that cannot be decompressed."""
    return explained(error, path, f"a {compression} file")
