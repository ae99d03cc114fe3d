"""TFRecord files as a source: an index of their records, and reads by position."""

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._crc32c import checksum_of_length, payload_checksum
from wholegrain.sources._errors import CorruptFileError
from wholegrain.sources._files import LocalFile, RandomFile, open_file
from wholegrain.sources._handles import Handles
from wholegrain.sources._sharded import ShardedDataSource
from wholegrain.sources._tfrecord_reader import (
    FOOT_BYTES,
    HEAD,
    OVERHEAD,
    bad_length,
    compression_of,
    corrupt,
    cut_off,
)

_MOST_THREADS = 16
_BLOCK_BYTES = 1 << 22


class TFRecordDataSource(ShardedDataSource[bytes]):
    """The records of TFRecord files, as bytes, in any order.

    The files have no index of their own, so all of them are read through once, when the source
    is made; a pickled source keeps the index. Only uncompressed files can be read this way: for
    others see `wholegrain.experimental.TFRecordIterDataset`.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, a sharded name such
            as `"train.tfrecord@16"`, or the address of objects in a store, `"s3://..."`.
        check_payload: Whether to verify the checksum of each record that is read. The checksums
            of the lengths are always verified, when the index is made.

    Example:
        >>> source = TFRecordDataSource("data/train-*.tfrecord")
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1).map(parse)
    """

    def __init__(self, paths: _paths.Paths, *, check_payload: bool = False) -> None:
        self._files = _paths.expand_all(paths, of=type(self).__name__)
        self._check_payload = check_payload
        with ThreadPoolExecutor(min(_MOST_THREADS, len(self._files))) as pool:
            index = list(pool.map(_index_of, self._files))
        self._starts = [starts for starts, _ in index]
        self._lengths = [lengths for _, lengths in index]
        self._set_counts([len(starts) for starts in self._starts])
        self._prepare()

    def _prepare(self) -> None:
        self._checksum = payload_checksum() if self._check_payload else None
        self._handles: Handles[_MappedFile | _RemoteRecords] = Handles(self._open, _close)

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._files)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_paths.summary(self._files)}, len={len(self)})"

    def _open(self, file: int) -> "_MappedFile | _RemoteRecords":
        path = self._files[file]
        starts, lengths = self._starts[file], self._lengths[file]
        needed = int(starts[-1] + lengths[-1]) + FOOT_BYTES
        opened = open_file(path)
        if opened.size < needed:
            raise _shrunk(path, needed, opened.size)
        return _MappedFile(opened) if isinstance(opened, LocalFile) else _RemoteRecords(opened)

    def _read_one(self, file: int, position: int) -> bytes:
        start, length = int(self._starts[file][position]), int(self._lengths[file][position])
        return self._checked(file, [start], self._handles.get(file).read([start], [length]))[0]

    def _read_many(self, file: int, positions: Indices) -> Sequence[bytes]:
        starts = self._starts[file][positions].tolist()
        lengths = self._lengths[file][positions].tolist()
        return self._checked(file, starts, self._handles.get(file).read(starts, lengths))

    def _checked(self, file: int, starts: list[int], payloads: list[bytes]) -> list[bytes]:
        if self._checksum is None:
            return payloads
        ends = [start + len(payload) for start, payload in zip(starts, payloads, strict=True)]
        feet = self._handles.get(file).read(ends, [FOOT_BYTES] * len(ends))
        for start, payload, foot in zip(starts, payloads, feet, strict=True):
            if int.from_bytes(foot, "little") != self._checksum(payload):
                offset = start - HEAD.size
                record = int(self._starts[file].searchsorted(start))
                problem = f"the checksum of record {record} is wrong"
                raise corrupt(self._files[file], offset, problem)
        return payloads

    def __getstate__(self) -> dict[str, Any]:
        names = ("_files", "_check_payload", "_starts", "_lengths", "_ends")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


class _MappedFile:
    """A local file in memory: no call to the system for a record."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._map = mmap.mmap(file.fileno(), file.size, access=mmap.ACCESS_READ)

    def read(self, starts: list[int], lengths: list[int]) -> list[bytes]:
        # Touching memory past the end of a file that has shrunk would end the process.
        size = os.fstat(self._file.fileno()).st_size
        if size < self._file.size:
            raise _shrunk(self._file.path, self._file.size, size)
        data = self._map
        pairs = zip(starts, lengths, strict=True)
        return [data[start : start + length] for start, length in pairs]

    def close(self) -> None:
        self._map.close()
        self._file.close()


class _RemoteRecords:
    """An object in a store: the parts asked for are fetched at the same time."""

    def __init__(self, file: RandomFile) -> None:
        self._file = file

    def read(self, starts: list[int], lengths: list[int]) -> list[bytes]:
        return self._file.read_ranges(starts, lengths)

    def close(self) -> None:
        self._file.close()


def _close(opened: _MappedFile | _RemoteRecords) -> None:
    opened.close()


def _shrunk(path: str, needed: int, found: int) -> CorruptFileError:
    return CorruptFileError(
        f"{path!r} has become shorter since it was indexed: {found} bytes where there were"
        f" {needed}. Make the source again."
    )


def _index_of(path: str) -> tuple[Indices, Indices]:
    """Return where the payloads of a file start, and how long they are."""
    file = open_file(path)
    try:
        compression = compression_of(file.read(0, HEAD.size))
        if compression is not None:
            raise CorruptFileError(
                f"{path!r} is compressed by {compression}, and cannot be read in any order."
                " Decompress it, or read it in order with"
                " `wholegrain.experimental.TFRecordIterDataset`."
            )
        return _scan(path, file.size, file.read)
    finally:
        file.close()


def _scan(path: str, size: int, read: Callable[[int, int], bytes]) -> tuple[Indices, Indices]:
    starts: list[int] = []
    lengths: list[int] = []
    offset = 0
    while offset < size:
        block = read(offset, _BLOCK_BYTES)
        last = len(block) - HEAD.size
        at = 0
        while at <= last:
            length, checksum = HEAD.unpack_from(block, at)
            if checksum != checksum_of_length(length):
                raise bad_length(path, offset + at)
            starts.append(offset + at + HEAD.size)
            lengths.append(length)
            at += OVERHEAD + length
        if at == 0 or offset + at > size:
            begin = offset if at == 0 else starts[-1] - HEAD.size
            needed = HEAD.size if at == 0 else OVERHEAD + lengths[-1]
            raise cut_off(path, begin, needed, size - begin)
        offset += at
    return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)
