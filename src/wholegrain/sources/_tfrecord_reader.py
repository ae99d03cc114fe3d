"""The format of TFRecord files, and a reader of their records in order.

A record is its length (uint64, little-endian), a checksum of the length, the payload, and a
checksum of the payload. A file contains nothing else, and may be compressed as a whole.
"""

import functools
import struct
import zlib

from wholegrain.sources import _remote
from wholegrain.sources._crc32c import checks, checksum_of_length, payload_checksum, tfrecord_lib
from wholegrain.sources._errors import CorruptFileError, check_memory, explained
from wholegrain.sources._files import FileStream, open_file
from wholegrain.sources._inflate import InflatingStream, Stream

HEAD = struct.Struct("<QI")
FOOT = struct.Struct("<I")
FOOT_BYTES = FOOT.size
OVERHEAD = HEAD.size + FOOT_BYTES

# Larger blocks would be newly mapped memory each time, and the page faults would cost more than
# reading the file. From a store, a block is large enough to amortise the latency of a request.
_BLOCK_BYTES = 1 << 16
_REMOTE_BLOCK_BYTES = 1 << 22
# Records may be larger, but a damaged length should not allocate all memory.
_MOST_BYTES_AT_ONCE = 1 << 26


def corrupt(path: str, offset: int, problem: str) -> CorruptFileError:
    """Return the error for a record that cannot be read."""
    return CorruptFileError(f"Not a valid TFRecord file: {path!r}, at byte {offset}: {problem}.")


def bad_length(path: str, offset: int) -> CorruptFileError:
    """Return the error for a record whose length does not match its checksum."""
    return corrupt(
        path,
        offset,
        "the checksum of the record's length is wrong, so the next record cannot be located",
    )


def bad_payload(path: str, offset: int) -> CorruptFileError:
    """Return the error for a record whose payload does not match its checksum."""
    return corrupt(path, offset, "the checksum of the record's payload is wrong")


def cut_off(path: str, offset: int, needed: int, found: int) -> CorruptFileError:
    """Return the error for a record of which only the first `found` bytes exist."""
    return corrupt(
        path, offset, f"the record has at least {needed} bytes, but the file ends after {found}"
    )


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file from its first bytes: "gzip", "zlib", or None."""
    if len(head) >= HEAD.size:
        length, checksum = HEAD.unpack_from(head)
        if checksum == checksum_of_length(length):
            return None  # whatever its length looks like
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    # RFC 1950: deflate, a window of at most 32 kB, no dictionary, and a check in both bytes.
    if len(head) >= 2 and head[0] & 0x8F == 0x08 and not head[1] & 0x20:
        return None if int.from_bytes(head[:2], "big") % 31 else "zlib"
    return None


class _LengthsOfHeads(dict[bytes, int]):
    """A cache from the header of a record to its length; -1 if the checksum is wrong.

    A file has few different record lengths, so most headers are found in the cache.
    """

    def __missing__(self, head: bytes) -> int:
        length, checksum = HEAD.unpack(head)
        if checksum != checksum_of_length(length):
            return -1
        if len(self) >= 65536:
            self.clear()
        self[head] = length
        return int(length)


_lengths = _LengthsOfHeads()


def split_records(block: bytes, at: int, count: int, check: bool) -> tuple[list[bytes], int]:
    """Return up to `count` payloads from `at` on, and the offset of the next record.

    Stops before a record that is not completely in the block, or whose length is damaged. With
    `check`, it also stops before a record whose payload is damaged.
    """
    last_foot = len(block) - FOOT_BYTES
    last_head = last_foot - HEAD.size
    head_bytes, foot_bytes, lengths = HEAD.size, FOOT_BYTES, _lengths
    checksum = payload_checksum() if check else None
    records: list[bytes] = []
    while at <= last_head and len(records) < count:
        start = at + head_bytes
        length = lengths[block[at:start]]
        stop = start + length
        if length < 0 or stop > last_foot:
            break
        record = block[start:stop]
        if checksum is not None and checksum(record) != FOOT.unpack_from(block, stop)[0]:
            break
        records.append(record)
        at = stop + foot_bytes
    return records, at


_split_records = split_records if tfrecord_lib is None else tfrecord_lib.split_records


class TFRecordReader:
    """The records of a TFRecord file from any position on, read many at a time.

    A subclass may open the file in its own way: it sets `_reader` to a stream with `read` and
    `seek` instead of calling `__init__`.

    Args:
        path: A file, or the address of an object in a store. It may be compressed by gzip or
            zlib, as a whole: positions are those in the content.
        check_payload: Whether to verify the checksums of payloads; by default if that is
            cheap. The checksums of lengths are always verified.
    """

    _reader: Stream
    _path = "<stream>"
    _block_bytes = _BLOCK_BYTES

    _content: Stream | None = None  # the stream of the content; None before the first read
    _position: int | None = 0  # of the content's next byte; None if it is not known
    _block = b""
    _block_offset = 0  # of the block in the content
    _at = 0  # of the next record in the block

    @functools.cached_property
    def _checks(self) -> bool:
        return checks(None)  # Of a subclass that opens the file itself.

    def __init__(self, path: str, *, check_payload: bool | None = None) -> None:
        self._checks = checks(check_payload)
        if _remote.is_remote(path):
            self._block_bytes = _REMOTE_BLOCK_BYTES
        self._path = path
        self._reader = FileStream(open_file(path))

    def take(self, count: int) -> list[bytes]:
        """Return some of the next records: at least one and at most `count`; none at the end.

        An exception is raised only for the first of them. It skips a record with a damaged
        payload; after other errors reading cannot continue.
        """
        records = self._take_from_block(count)
        if records or not self._read_record():
            return records
        records = self._take_from_block(count)
        if not records:
            # The record is complete, so its payload is damaged.
            offset, head = self.tell(), self._block[self._at : self._at + HEAD.size]
            self._at += OVERHEAD + _lengths[head]
            raise bad_payload(self._path, offset)
        return records

    def _take_from_block(self, count: int) -> list[bytes]:
        """Return the records that are completely in the block, up to the first damaged one."""
        records, self._at = _split_records(self._block, self._at, count, self._checks)
        return records

    def _read_record(self) -> bool:
        """Read on until the next record is in the block; return False at the end."""
        if not self._read_to(OVERHEAD):
            left = len(self._block) - self._at
            if left:
                raise cut_off(self._path, self.tell(), OVERHEAD, left)
            return False
        head = self._block[self._at : self._at + HEAD.size]
        length = _lengths[head]
        if length < 0:
            raise bad_length(self._path, self.tell())
        if not self._read_to(OVERHEAD + length):
            left = len(self._block) - self._at
            raise cut_off(self._path, self.tell(), OVERHEAD + length, left)
        return True

    def _read_to(self, needed: int) -> bool:
        """Read on until `needed` bytes follow in the block; return False if the file ends."""
        if len(self._block) - self._at >= needed:
            return True
        # Once as parts, and once joined.
        check_memory(2 * needed, self._path, f", record at byte {self.tell()},")
        self._drop_what_was_read()
        try:
            self._block = self._read_on(self._block, needed)
        except BaseException as error:
            self._position = None  # It is unknown how much was read.
            if isinstance(error, (zlib.error, EOFError)):
                problem = f"the compressed file is damaged ({error})"
                raise corrupt(self._path, self._block_offset, problem) from error
            if isinstance(error, MemoryError):
                where = f", record at byte {self._block_offset}"
                raise explained(error, self._path, "TFRecord", where) from error
            raise
        return len(self._block) >= needed

    def _read_on(self, block: bytes, needed: int) -> bytes:
        content = self._content
        if content is None:
            content, block = self._open_content()
            self._content = content
        end = self._block_offset + len(block)
        if self._position != end:
            content.seek(end)
            self._position = end
        parts = [block]
        missing = needed - len(block)
        while missing > 0:
            wanted = min(max(missing, self._block_bytes), _MOST_BYTES_AT_ONCE)
            part = content.read(wanted)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
            self._position += len(part)
        return b"".join(parts)

    def _open_content(self) -> tuple[Stream, bytes]:
        """Return a stream of the content of the file, and the first block of it."""
        if self._position != 0:
            self._reader.seek(0)
        # Most reads start at the beginning of the file, where one read serves both.
        wanted = HEAD.size if self._block_offset else self._block_bytes
        begin = b""
        while len(begin) < HEAD.size and (part := self._reader.read(wanted - len(begin))):
            begin += part
        compression = compression_of(begin[: HEAD.size])
        if compression is not None:
            self._position = 0
            return InflatingStream(self._reader, compression, begin), b""
        self._position = len(begin)
        return self._reader, (b"" if self._block_offset else begin)

    def _drop_what_was_read(self) -> None:
        self._block_offset += self._at
        self._block, self._at = self._block[self._at :], 0

    def tell(self) -> int:
        """Return the position of the next record."""
        return self._block_offset + self._at

    def seek(self, offset: int) -> None:
        """Seek to the record at a position that `tell` returned."""
        if offset < 0:
            raise ValueError(f"A position in {self._path!r} cannot be negative, but got {offset}.")
        at = offset - self._block_offset
        if 0 <= at <= len(self._block):
            self._at = at
        else:
            self._block, self._block_offset, self._at = b"", offset, 0

    def is_at_record(self) -> bool:
        """Whether a record starts at the current position, or the file ends there."""
        offset = self.tell()
        if not offset:
            return True
        if self._read_to(OVERHEAD):
            return _lengths[self._block[self._at : self._at + HEAD.size]] >= 0
        if len(self._block) > self._at or self._content is None:
            return True  # The record is truncated; reading it raises an error that says so.
        self._content.seek(offset - 1)
        self._position = None
        return bool(self._content.read(1))

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def close(self) -> None:
        """Close the file, but keep the position."""
        self._block, self._block_offset, self._at = b"", self.tell(), 0
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()
