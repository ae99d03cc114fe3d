"""Records of one TFRecord file, one after the other, from any record on.

Layout of a record: length (8 bytes), checksum of the length (4), payload, its checksum (4).
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import IO, Any

from wholegrain.sources._crc32c import checksum_of_length, payload_checksum
from wholegrain.sources._errors import CorruptFileError
from wholegrain.sources._files import FileStream, open_file

HEAD = struct.Struct("<QI")
FOOT_BYTES = 4
OVERHEAD = HEAD.size + FOOT_BYTES
_BLOCK_BYTES = 1 << 18
_CHECKSUM = struct.Struct("<I")


def compression_of(start: bytes) -> str | None:
    """Return how a file is compressed, from its first bytes; None if it is not.

    A length may look like the mark of a compressed file, but then its checksum is right.
    """
    if len(start) >= HEAD.size:
        length, checksum = HEAD.unpack_from(start)
        if checksum == checksum_of_length(length):
            return None
    if start[:2] == b"\x1f\x8b":
        return "gzip"
    if len(start) >= 2 and start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0:
        return "zlib"
    return None


def corrupt(path: str, offset: int, problem: str) -> CorruptFileError:
    """Return the error for a file that is not as it should be at `offset`."""
    return CorruptFileError(f"Not a valid TFRecord file: {path!r}, at byte {offset}: {problem}.")


def bad_length(path: str, offset: int) -> CorruptFileError:
    """Return the error for a length whose checksum is wrong."""
    return corrupt(path, offset, "the checksum of the record's length is wrong")


def cut_off(path: str, offset: int, needed: int, found: int) -> CorruptFileError:
    """Return the error for a file that ends within a record."""
    problem = f"the record there takes {needed} bytes, but the file has only {found} more"
    return corrupt(path, offset, problem)


class TFRecordReader:
    """The records of a TFRecord file, compressed by gzip or zlib or not at all.

    A subclass may open the file in its own way: it sets `_reader` to a binary stream that can
    seek, and need not call `__init__`.

    Args:
        path: The file, or the address of an object in a store.
        check_payload: Whether to verify the checksums of the payloads, and not only of the
            lengths.
    """

    # Set here, and not in `__init__`, for subclasses that only set `_reader`.
    _path: str | None = None
    _reader: Any = None
    _checksum: Callable[[bytes], int] | None = None
    _stream: Any = None
    offset = 0  # where the next record starts, in the uncompressed file
    _block = b""
    _block_offset = 0
    ends: Sequence[int] = ()

    def __init__(self, path: str, *, check_payload: bool = False) -> None:
        self._path = path
        self._checksum = payload_checksum() if check_payload else None

    @property
    def name(self) -> str:
        """The file's name, as far as it is known."""
        name = self._path or getattr(self._reader, "name", None)
        return name if isinstance(name, str) else repr(self._reader)

    def take(self, count: int) -> list[bytes]:
        """Return some of the next records: at least one and at most `count`; none at the end.

        Those of a block are taken together; `ends` says where each of them ends. An exception is
        raised for the first of them only, and again whenever it is the first.
        """
        records: list[bytes] = []
        ends: list[int] = []
        self.ends = ends
        if not self._load_record():
            return records
        block, base = self._block, self._block_offset
        at, size = self.offset - base, len(block)
        while len(records) < count and at + HEAD.size <= size:
            length, checksum = HEAD.unpack_from(block, at)
            start = at + HEAD.size
            end = start + length + FOOT_BYTES
            if checksum != checksum_of_length(length) or end > size:
                break
            payload = block[start : start + length]
            if self._checksum is not None:
                (found,) = _CHECKSUM.unpack_from(block, start + length)
                if found != self._checksum(payload):
                    if records:
                        break
                    raise corrupt(self.name, self.offset, "the checksum of the payload is wrong")
            records.append(payload)
            at = end
            ends.append(base + at)
        self.offset = base + at
        return records

    def _load_record(self) -> bool:
        """Make the block hold the next record; return False if there is none."""
        at = self.offset - self._block_offset
        if at < 0 or at + HEAD.size > len(self._block):
            available = self._load(HEAD.size)
            if available == 0:
                return False
            if available < HEAD.size:
                raise cut_off(self.name, self.offset, HEAD.size, available)
            at = 0
        length, checksum = HEAD.unpack_from(self._block, at)
        if checksum != checksum_of_length(length):
            raise bad_length(self.name, self.offset)
        size = OVERHEAD + length
        if at + size > len(self._block):
            available = self._load(size)
            if available < size:
                raise cut_off(self.name, self.offset, size, available)
        return True

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        stream, self._stream = self._stream, None
        self._block, self._block_offset = b"", 0
        for opened in (stream, self._reader):
            if opened is not None:
                opened.close()
        if self._path is not None:
            self._reader = None

    def _load(self, size: int) -> int:
        """Make the block start at the offset and hold `size` bytes; return how many it holds."""
        if self._stream is None:
            self._stream = self._open()
        kept = self.offset - self._block_offset
        if 0 <= kept <= len(self._block):
            parts = [self._block[kept:]]
        else:
            parts = [b""]
            self._stream.seek(self.offset)
        held = len(parts[0])
        wanted = max(size, _BLOCK_BYTES)
        while held < wanted:
            part = self._read(wanted - held)
            if not part:
                break
            parts.append(part)
            held += len(part)
        self._block = b"".join(parts)
        self._block_offset = self.offset
        return held

    def _read(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"the compressed data is damaged or cut off ({error})"
            raise corrupt(self.name, self.offset, problem) from error
        return data

    def _open(self) -> Any:
        if self._reader is None:
            assert self._path is not None
            self._reader = FileStream(open_file(self._path))
        stream = self._reader
        stream.seek(0)
        compression = compression_of(stream.read(HEAD.size))
        stream.seek(0)
        if compression == "gzip":
            stream = gzip.GzipFile(fileobj=stream)
        elif compression == "zlib":
            stream = _ZlibStream(stream)
        self._block, self._block_offset = b"", 0
        stream.seek(0)
        return stream


class _ZlibStream:
    """What a zlib-compressed stream decompresses to. Going back starts anew."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._restart()

    def _restart(self) -> None:
        self._stream.seek(0)
        self._decompressor = zlib.decompressobj()
        self._position = 0

    def read(self, size: int) -> bytes:
        data = b""
        while not data and not self._decompressor.eof:
            compressed = self._decompressor.unconsumed_tail or self._stream.read(_BLOCK_BYTES)
            if not compressed:
                raise EOFError("the file ends before the compressed data does")
            data = self._decompressor.decompress(compressed, size)
        self._position += len(data)
        return data

    def seek(self, offset: int) -> None:
        if offset < self._position:
            self._restart()
        while self._position < offset:
            if not self.read(min(offset - self._position, _BLOCK_BYTES)):
                break

    def close(self) -> None:
        """Do nothing: the stream belongs to the reader."""
