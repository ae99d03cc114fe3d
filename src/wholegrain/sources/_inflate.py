"""Compressed files as a stream of their content."""

import zlib
from typing import Protocol

# The kinds of header, with zlib's numbers.
_WINDOW_BITS = {"gzip": 31, "zlib": 15}
_BLOCK_BYTES = 1 << 18


class Stream(Protocol):
    """Bytes with a position: a file, or anything that reads like one."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: at most `size`; none at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Go to a position, counted from the start."""
        ...


class InflatingStream:
    """The content of a compressed stream. Seeking back starts again from the beginning.

    Args:
        stream: The compressed bytes.
        compression: "gzip" or "zlib".
        begin: The bytes that were already read from the stream.
    """

    def __init__(self, stream: Stream, compression: str, begin: bytes = b"") -> None:
        self._stream = stream
        self._window_bits = _WINDOW_BITS[compression]
        self._start(begin)

    def _start(self, begin: bytes) -> None:
        self._inflate = zlib.decompressobj(self._window_bits)
        self._input = begin
        self._position = 0

    def read(self, size: int, /) -> bytes:
        """Return the next bytes: at most `size`; none at the end.

        Raises:
            zlib.error: If the stream is damaged.
            EOFError: If it ends too early.
        """
        while True:
            if self._inflate.eof and not self._next_member():
                return b""
            given = self._input or self._stream.read(_BLOCK_BYTES)
            # Even without input, because some output may still be buffered.
            data = self._inflate.decompress(given, size)
            self._input = self._inflate.unconsumed_tail
            if data:
                self._position += len(data)
                return data
            if not given and not self._inflate.eof:
                raise EOFError("it ends within the compressed data")

    def _next_member(self) -> bool:
        """Move past the end of a compressed member; return whether another one follows.

        Concatenated compressed files are valid, and zeros may pad the end.
        """
        rest = self._inflate.unused_data.lstrip(b"\0")
        while not rest:
            block = self._stream.read(_BLOCK_BYTES)
            if not block:
                return False
            rest = block.lstrip(b"\0")
        self._inflate = zlib.decompressobj(self._window_bits)
        self._input = rest
        return True

    def seek(self, offset: int, /) -> int:
        """Go to a position in the content, or to its end if that comes first."""
        if offset < self._position:
            self._stream.seek(0)
            self._start(b"")
        while self._position < offset:
            if not self.read(min(offset - self._position, _BLOCK_BYTES)):
                break
        return self._position
