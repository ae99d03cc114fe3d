"""The content of a file in order, from any position on; compressed or not."""

from collections.abc import Iterator

from wholegrain.sources._content import blocks_from
from wholegrain.sources._errors import check_memory
from wholegrain.sources._files import RemoteFile, open_file
from wholegrain.sources._frames import Inflation, compression_of

_BLOCK_BYTES = 1 << 18
_REMOTE_BLOCK_BYTES = 1 << 22
_HEAD_BYTES = 8


class ContentStream:
    """The content of a file with a position that moves forward.

    Going back in a compressed file, or going to a position after it was opened, decompresses it
    from its begin.

    Args:
        path: A file, or the address of an object in a store.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open_file(path)
        self._compression = compression_of(self._file.read(0, _HEAD_BYTES))
        self._block_bytes = (
            _REMOTE_BLOCK_BYTES if isinstance(self._file, RemoteFile) else _BLOCK_BYTES
        )
        self._go_to(0)

    def _go_to(self, position: int) -> None:
        self._buffer, self._start = b"", position
        if self._compression is None:
            self._blocks = blocks_from(self._file, position, self._block_bytes)
        else:
            self._blocks = iter(Inflation(self._file, self._compression))
            self._start = 0

    @property
    def content_size(self) -> int | None:
        """The length of the content; None if that is not known."""
        return self._file.size if self._compression is None else None

    def read(self, start: int, length: int) -> bytes:
        """Return a part of the content, or less at its end."""
        at = start - self._start
        if 0 <= at <= len(self._buffer) - length:
            return self._buffer[at : at + length]
        if at < 0:
            self._go_to(start)
        check_memory(length, self.path, f", at byte {start},")
        if self._compression is None and start > self._start + len(self._buffer):
            self._go_to(start)
        try:
            self._read_on(start, start + length)
        except BaseException:
            self._go_to(0)  # The generator has ended, and some blocks are lost.
            raise
        at = start - self._start
        return self._buffer[at : at + length]

    def _read_on(self, start: int, stop: int) -> None:
        """Read blocks up to `stop`, and drop what is before `start`."""
        kept = self._buffer[start - self._start :]
        self._start += len(self._buffer) - len(kept)
        parts, size = [kept], len(kept)
        while self._start + size < stop and (block := next(self._blocks, b"")):
            parts.append(block)
            size += len(block)
            if self._start + size <= start:
                self._start += size
                parts, size = [], 0
        self._buffer = parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self, start: int) -> Iterator[bytes]:
        """Yield the content from a position on. Other reads may come between."""
        while block := self.read(start, self._block_bytes):
            yield block
            start += len(block)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
