"""TFRecord files as a source: an index of their records, and random access."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._crc32c import checks, checksum_of_length, payload_checksum, tfrecord_lib
from wholegrain.sources._errors import CorruptFileError
from wholegrain.sources._files import LocalFile, RemoteFile, open_file
from wholegrain.sources._handles import Handles
from wholegrain.sources._mapping import MappedFile, shrunk
from wholegrain.sources._progress import open_all
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

_BLOCK_BYTES = 1 << 22


class TFRecordDataSource(ShardedDataSource[bytes]):
    """The records of TFRecord files, as bytes, in any order.

    The format has no index, so all files are scanned once, when the source is created. A pickled
    source keeps the index. Only uncompressed files can be read this way; for compressed files use
    `wholegrain.experimental.TFRecordIterDataset`.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, a sharded name such
            as `"train.tfrecord@16"`, or the address of objects in a store, `"s3://..."`.
        check_payload: Whether to verify the checksum of each record that is read; by default if
            wholegrain's extension or `google-crc32c` is installed. The checksums of lengths are
            always verified, when the index is created.

    Example:
        >>> source = TFRecordDataSource("data/train-*.tfrecord")
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1).map(parse)
    """

    def __init__(self, paths: _paths.Paths, *, check_payload: bool | None = None) -> None:
        self._files = _paths.expand_all(paths, of=type(self).__name__)
        self._check_payload = check_payload
        self._prepare()
        self._indexes = open_all(_index_of, self._files)
        self._set_counts([len(index.starts) for index in self._indexes])

    def _prepare(self) -> None:
        self._checks = checks(self._check_payload)
        self._handles: Handles[_MappedRecords | _RemoteRecords] = Handles(self._open, _close)

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return list(self._files)

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return self._files

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_paths.summary(self._files)}, len={len(self)})"

    def _open(self, file: int) -> "_MappedRecords | _RemoteRecords":
        path, index = self._files[file], self._indexes[file]
        opened = open_file(path)
        if opened.size < index.size:
            raise shrunk(path, index.size, opened.size)
        if _identity(opened) != index.identity and not index.is_of(_scan(opened)):
            raise CorruptFileError(
                f"{path!r} has changed since the source was created: its records have other"
                " offsets now. Create the source again."
            )
        return _MappedRecords(opened) if isinstance(opened, LocalFile) else _RemoteRecords(opened)

    def _read_one(self, file: int, position: int) -> bytes:
        return self._read_many(file, np.array([position]))[0]

    def _read_many(self, file: int, positions: Indices) -> Sequence[bytes]:
        index = self._indexes[file]
        starts, lengths = index.starts[positions], index.lengths[positions]
        payloads, bad = self._handles.get(file).read(starts, lengths, self._checks)
        if bad >= 0:
            problem = f"the checksum of record {positions[bad]} is wrong"
            raise corrupt(self._files[file], int(starts[bad]) - HEAD.size, problem)
        return payloads

    def __getstate__(self) -> dict[str, Any]:
        names = ("_files", "_check_payload", "_indexes", "_ends")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


class _MappedRecords:
    """The records of a memory-mapped local file: reading one needs no system call."""

    def __init__(self, file: LocalFile) -> None:
        self._file = MappedFile(file)
        file.close()

    def read(self, starts: Indices, lengths: Indices, check: bool) -> tuple[list[bytes], int]:
        """Return payloads, and the number of the first bad one; -1 if there is none."""
        self._file.check()
        return _take(self._file.memory, starts, lengths, check)


class _RemoteRecords:
    """An object in a store: the requested parts are fetched concurrently."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file

    def read(self, starts: Indices, lengths: Indices, check: bool) -> tuple[list[bytes], int]:
        """Return payloads, and the number of the first bad one; -1 if there is none."""
        stops = starts + lengths + FOOT_BYTES
        if len(stops) and stops[-1] > self._file.size:
            raise shrunk(self._file.path, int(stops[-1]), self._file.size)
        payloads: list[bytes] = []
        runs, offsets = self._file.runs(starts, stops)
        for begin, end, memory in runs:
            found, bad = _take(memory, offsets[begin:end], lengths[begin:end], check)
            if bad >= 0:
                return payloads + found, begin + bad
            payloads += found
        return payloads, -1


def _take(data: Any, starts: Indices, lengths: Indices, check: bool) -> tuple[list[bytes], int]:
    """Return payloads in memory, and the number of the first bad one; -1 if there is none."""
    if tfrecord_lib is not None:
        return tfrecord_lib.take_records(data, starts, lengths, check)
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    payloads = [data[start : start + length] for start, length in pairs]
    if not check:
        return payloads, -1
    stops = (starts + lengths).tolist()
    return payloads, _first_bad(payloads, [data[stop : stop + FOOT_BYTES] for stop in stops])


def _first_bad(payloads: list[bytes], feet: list[bytes]) -> int:
    checksum = payload_checksum()
    for number, (payload, foot) in enumerate(zip(payloads, feet, strict=True)):
        if int.from_bytes(foot, "little") != checksum(payload):
            return number
    return -1


def _close(opened: _MappedRecords | _RemoteRecords) -> None:
    """Do nothing: the file is unmapped when nothing refers to its memory."""


# What distinguishes a file from another one at the same path: for a local file its inode,
# modification time and length; for an object in a store its length.
_Identity = tuple[int, ...]


def _identity(file: LocalFile | RemoteFile) -> _Identity:
    if isinstance(file, RemoteFile):
        return (file.size,)
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@dataclasses.dataclass(frozen=True)
class _Index:
    """The offsets and lengths of the payloads of a file."""

    identity: _Identity
    starts: Indices
    lengths: Indices

    @property
    def size(self) -> int:
        """The minimum length of the file."""
        return int(self.starts[-1] + self.lengths[-1]) + FOOT_BYTES if len(self.starts) else 0

    def is_of(self, other: "tuple[Indices, Indices]") -> bool:
        """Return whether the file at the same path, now or on another machine, is the same."""
        starts, lengths = other
        return np.array_equal(self.starts, starts) and np.array_equal(self.lengths, lengths)


def _index_of(path: str) -> _Index:
    with contextlib.closing(open_file(path)) as file:
        return _Index(_identity(file), *_scan(file))


def _scan(file: LocalFile | RemoteFile) -> tuple[Indices, Indices]:
    """Return the offsets and lengths of the payloads of a file."""
    path, size, read = file.path, file.size, file.read
    compression = compression_of(read(0, HEAD.size))
    if compression is not None:
        raise CorruptFileError(
            f"{path!r} is compressed with {compression}, which does not allow random access."
            " Decompress it, or read it in order with"
            " `wholegrain.experimental.TFRecordIterDataset`."
        )
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
