"""ArrayRecord files in stores that the `array_record` library cannot read, such as S3.

An ArrayRecord file is a Riegeli file: a sequence of chunks, each with a header, which a block
header interrupts at every multiple of 64 KiB. The last 64 KiB say where the footer is, and the
footer has the offset of each chunk. So a record needs one range of the file.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import Indices
from wholegrain.sources._errors import DataFileError, check_memory, explained
from wholegrain.sources._files import LocalFile, RemoteFile
from wholegrain.sources._frames import zstd
from wholegrain.sources._optional import require

_BLOCK_BYTES = 1 << 16
_BLOCK_HEADER_BYTES = 24
# Hash of the header, size and hash of the data, type and number of records, their total size.
_HEADER = struct.Struct("<5Q")
_MAGIC = 0x71930E704FDAE05E
# One request for the end of the file finds the footer too, unless there are many chunks.
_TAIL_BYTES = 4 * _BLOCK_BYTES
_SIMPLE, _TRANSPOSED = ord("r"), ord("t")
_CODECS = {ord("b"): "brotli", ord("s"): "snappy"}
# The fields of an entry of the footer, as the tags before their values.
_OFFSET, _DECODED_SIZE, _COUNT = 1 << 3, 2 << 3, 3 << 3


class ArrayRecordObject:
    """The records of one file. It has the methods of the library's reader that are used.

    Hashes are not verified, but everything that the headers, the index and the compression tell
    has to agree. Several threads may read at once.

    Raises:
        DataFileError: If it cannot be read, or is not an ArrayRecord file.
    """

    def __init__(self, file: RemoteFile | LocalFile) -> None:
        self._file = file
        try:
            self._read_index()
        except Exception as error:
            raise self._explained(error, "") from error

    @property
    def tag(self) -> str:
        """What changes whenever the object does; empty if the store does not tell it."""
        return getattr(self._file, "tag", "")

    def num_records(self) -> int:
        """Return the number of records."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def writer_options_string(self) -> str | None:
        """Return the options that the file was written with, if it has them."""
        return self._writer_options

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, first: int | Sequence[int], stop: int | None = None) -> list[bytes]:
        """Return the records from `first` up to `stop`, or those of a sequence of numbers."""
        if isinstance(first, int):
            positions = np.arange(first, stop, dtype=np.int64)
        else:
            positions = np.asarray(first, dtype=np.int64)
        chunks = self._ends.searchsorted(positions, side="right")
        needed = np.unique(chunks)
        starts = self._offsets[needed].tolist()
        lengths = (self._offsets[needed + 1] - self._offsets[needed]).tolist()
        decoder = _Decoder(self._file.path)
        groups: dict[int, list[bytes]] = {}
        parts = self._file.read_ranges(starts, lengths)
        for number, start, data in zip(needed.tolist(), starts, parts, strict=True):
            try:
                groups[number] = decoder.records(data, start)
                if len(groups[number]) != self._counts[number]:
                    raise ValueError("the index has another number of records")
            except Exception as error:
                where = f", records from {self._ends[number] - self._counts[number]} on,"
                raise self._explained(error, where) from error
        within = (positions - (self._ends - self._counts)[chunks]).tolist()
        return [groups[chunk][at] for chunk, at in zip(chunks.tolist(), within, strict=True)]

    def _explained(self, error: Exception, where: str) -> Exception:
        if isinstance(error, DataFileError) or is_interruption(error):
            return error
        return explained(error, self._file.path, "an ArrayRecord file", where)

    def _read_index(self) -> None:
        """Read the offset of each chunk from the footer."""
        size = self._file.size
        if size < 2 * _BLOCK_BYTES or size % _BLOCK_BYTES:
            raise ValueError(f"its length, {size}, is not one of an ArrayRecord file")
        tail_start = max(0, size - _TAIL_BYTES)
        tail = self._file.read(tail_start, size - tail_start)
        end = size - _BLOCK_BYTES
        decoder = _Decoder(self._file.path)
        footer_start = _footer_offset(decoder.records(tail[end - tail_start :], end))
        if footer_start >= end:
            raise ValueError("the footer is not within the file")
        if footer_start < tail_start:
            footer = self._file.read(footer_start, end - footer_start)
        else:
            footer = tail[footer_start - tail_start : end - tail_start]
        sizes, values = decoder.parts(footer, footer_start)
        first = int(sizes[0])  # the description; the entries follow
        self._writer_options = _writer_options(bytes(values[:first]))
        entries = _varints(values[first:]).reshape(-1, 2)
        fields = {tag: entries[entries[:, 0] == tag, 1] for tag in (_OFFSET, _COUNT)}
        if {len(values) for values in fields.values()} != {len(sizes) - 1}:
            raise ValueError("the footer has unknown fields")
        offsets = np.append(fields[_OFFSET], np.uint64(footer_start)).astype(np.int64)
        if offsets[0] < 0 or (np.diff(offsets) < _HEADER.size).any():
            raise ValueError("the offsets in the footer do not rise")
        self._offsets: Indices = offsets
        self._counts: Indices = fields[_COUNT].astype(np.int64)
        self._ends: Indices = self._counts.cumsum()


class _Decoder:
    """Decompresses chunks. Each thread needs its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._decompressors: dict[int, Any] = {}

    def records(self, raw: bytes, offset: int) -> list[bytes]:
        """Return the records of the chunk at an offset of the file."""
        sizes, values = self.parts(raw, offset)
        if len(sizes) == 1:
            return [bytes(values)]
        stops = sizes.cumsum().tolist()
        starts = [0, *stops[:-1]]
        return [bytes(values[start:stop]) for start, stop in zip(starts, stops, strict=True)]

    def parts(self, raw: bytes, offset: int) -> tuple[Indices, memoryview]:
        """Return the sizes of the records of a chunk, and the records one after the other."""
        data = memoryview(_without_block_headers(raw, offset))
        _, size, _, kind_and_count, decoded_size = _HEADER.unpack_from(data)
        kind, count = kind_and_count & 0xFF, kind_and_count >> 8
        data = data[_HEADER.size : _HEADER.size + size]
        if kind == _TRANSPOSED:
            raise ValueError(
                "it was written with the option `transpose`; such a file can be read from a local"
                " disk"
            )
        if kind != _SIMPLE or len(data) != size:
            raise ValueError("a chunk has no valid header")
        compression = data[0]
        sizes_size, at = _varint(data, 1)
        sizes = self._decompressed(compression, data[at : at + sizes_size])
        values = self._decompressed(compression, data[at + sizes_size :])
        found = _varints(sizes).astype(np.int64)
        if len(found) != count or len(values) != decoded_size or found.sum() != decoded_size:
            raise ValueError("the sizes of its records are not valid")
        return found, values

    def _decompressed(self, compression: int, data: memoryview) -> memoryview:
        if compression == 0:
            return data
        size, at = _varint(data, 0)
        if not size:
            return data[:0]
        check_memory(size, self._path, ", one chunk,")
        data = data[at:]
        decompressor = self._decompressors.get(compression)
        if decompressor is None:
            decompressor = self._decompressors[compression] = _decompressor(compression)
        content = memoryview(decompressor(data, size))
        if len(content) != size:
            raise ValueError("the compressed data has another length")
        return content


def _decompressor(compression: int) -> Any:
    if compression == ord("z"):
        context = zstd().ZstdDecompressor()
        return lambda data, size: context.decompress(data, max_output_size=size)
    if compression not in _CODECS:
        raise ValueError(f"the compression {compression} is unknown")
    name = _CODECS[compression]
    library = require("pyarrow", extra="parquet", purpose=f"Reading {name} from a store")
    codec = library.Codec(name)
    return lambda data, size: codec.decompress(data, decompressed_size=size)


def _without_block_headers(raw: bytes, offset: int) -> bytes:
    """Return a part of a file that starts at an offset, without the headers of blocks."""
    first = -offset % _BLOCK_BYTES
    if first >= len(raw):
        return raw
    blocks = range(first, len(raw), _BLOCK_BYTES)
    pieces = [raw[at + _BLOCK_HEADER_BYTES : at + _BLOCK_BYTES] for at in blocks]
    return b"".join([raw[:first], *pieces])


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _varints(data: bytes | memoryview) -> npt.NDArray[np.uint64]:
    """Return all numbers in a buffer that contains nothing else."""
    array = np.frombuffer(data, np.uint8)
    lasts = np.flatnonzero(array < 0x80)
    if not len(array):
        return np.empty(0, np.uint64)
    if not len(lasts) or lasts[-1] != len(array) - 1:
        raise ValueError("a number has no end")
    starts = np.append(0, lasts[:-1] + 1)
    lengths = lasts - starts + 1
    values = np.zeros(len(starts), np.uint64)
    if lengths.max() > 10:
        raise ValueError("a number is too long")
    for place in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > place)
        digits = array[starts[longer] + place].astype(np.uint64) & np.uint64(0x7F)
        values[longer] |= digits << np.uint64(7 * place)
    return values


def _footer_offset(postscripts: list[bytes]) -> int:
    """Return where the footer starts. It is stored several times."""
    for postscript in postscripts:
        fields = _varints(postscript)
        if len(fields) == 4 and fields.tolist()[::2] == [8, 16] and fields[3] == _MAGIC:
            return int(fields[1])
    raise ValueError("the end of the file does not say where the footer is")


def _writer_options(description: bytes) -> str | None:
    """Return field 4 of the description in the footer, which is a message in a message."""
    length, at = _varint(description, 1)
    end = at + length
    while at < end:
        tag, at = _varint(description, at)
        value, at = _varint(description, at)
        if tag & 7 == 2:  # `value` bytes follow
            if tag >> 3 == 4:
                return description[at : at + value].decode()
            at += value
    return None
