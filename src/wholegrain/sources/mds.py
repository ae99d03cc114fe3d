"""MosaicML's shards (MDS) as a source."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._content import (
    Content,
    MappedContent,
    RemoteContent,
    blocks,
    decompressed_copy,
)
from wholegrain.sources._decode import Decode, apply_decoders, decoders
from wholegrain.sources._errors import CorruptFileError, DataFileError, unreadable
from wholegrain.sources._files import LocalFile, RemoteFile, open_file, read_all
from wholegrain.sources._handles import Handles
from wholegrain.sources._identity import Identity
from wholegrain.sources._mds_format import SampleDecoder, Shard, ShardFile, hasher, shards_of
from wholegrain.sources._row_parsers import checked_fields
from wholegrain.sources._sharded import ShardedDataSource

_INDEX = "index.json"


class MdsDataSource(ShardedDataSource[dict[str, Any]]):
    """The samples of an MDS dataset, as MosaicML's `MDSWriter` writes it, in any order.

    Numbers, texts, JSON and arrays are decoded as MosaicML's library does. Images (`jpeg`, `png`,
    `pil`) and pickles stay bytes: pass a function to decode them. Shards that exist only
    compressed are decompressed once into the cache folder.

    Args:
        path: The folder with `index.json`, or its address in an object store, `"s3://..."`.
        fields: The columns to return; by default all.
        decode: For some columns, a function of the decoded value, or the name of one: see
            `TarDataSource`.
        check_hashes: Whether to verify the hash of each shard before it is first read in a
            process. By default hashes are verified when a shard is decompressed; the lengths of
            files are always verified.

    Example:
        >>> source = MdsDataSource("dataset/train", decode={"image": decode_jpeg})
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Sequence[str] | None = None,
        *,
        decode: Decode | None = None,
        check_hashes: bool | None = None,
    ) -> None:
        self._path = _paths.to_text(path).rstrip("/")
        self._fields = checked_fields(fields, type(self).__name__)
        self._decode = decoders(decode, type(self).__name__)
        self._check_hashes = check_hashes
        index = self._file(_INDEX)
        self._shards = shards_of(index, _content(index))
        for shard in self._shards:
            missing = [name for name in self._fields or () if name not in shard.columns]
            if missing:
                raise ValueError(
                    f"{index!r} has no column {missing[0]!r}. The columns are"
                    f" {', '.join(shard.columns)}."
                )
        self._set_counts([shard.count for shard in self._shards])
        self._prepare()

    def _prepare(self) -> None:
        self._handles: Handles[_OpenShard] = Handles(self._open, _close)

    def _file(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _path_of(self, file: int) -> str | None:
        shard = self._shards[file]
        return self._file((shard.zipped or shard.raw).name)

    @property
    def columns(self) -> dict[str, str]:
        """The encodings of the columns."""
        if not self._shards:
            return {}
        return dict(zip(self._shards[0].columns, self._shards[0].encodings, strict=True))

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return [self._path]

    @property
    def _data_paths(self) -> list[str]:
        """The files whose content the samples are; in a store, the one that contains hashes."""
        names = ["index.json"]
        if not _paths.is_remote(self._path):
            for shard in self._shards:
                names += [shard.raw.name] + ([shard.zipped.name] if shard.zipped else [])
        return [self._file(name) for name in names]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r}, len={len(self)})"

    def _open(self, number: int) -> "_OpenShard":
        shard = self._shards[number]
        path = self._file(shard.raw.name)
        try:
            decode = SampleDecoder(shard, self._fields)
        except ValueError as error:
            raise CorruptFileError(f"{path!r} cannot be read: {error}.") from error
        return _OpenShard(path, shard, self._content(shard), decode)

    def _content(self, shard: Shard) -> Content:
        zipped = shard.zipped
        if zipped is not None and shard.compression is not None:
            path = self._file(shard.raw.name)
            if _paths.is_remote(self._path) or not os.path.exists(path):
                return self._unzipped(shard, zipped, shard.compression)
        file = self._checked(shard.raw, check=bool(self._check_hashes))
        if isinstance(file, RemoteFile):
            return RemoteContent(file)
        with contextlib.closing(file):
            return MappedContent(file)

    def _unzipped(self, shard: Shard, zipped: ShardFile, compression: str) -> Content:
        file = self._checked(zipped, check=bool(self._check_hashes))
        check: Callable[[], None] = lambda: None  # noqa: E731
        if self._check_hashes is None:
            check = functools.partial(_check_hash, file, zipped, needed=False)
        with contextlib.closing(file):
            copy = decompressed_copy(file, compression, Identity.of(file), check)
        with contextlib.closing(copy):
            if copy.size != shard.raw.nbytes:
                raise _wrong_length(file.path, copy.size, shard.raw.nbytes)
            return MappedContent(copy)

    def _checked(self, expected: ShardFile, *, check: bool) -> LocalFile | RemoteFile:
        file = open_file(self._file(expected.name))
        try:
            if file.size != expected.nbytes:
                raise _wrong_length(file.path, file.size, expected.nbytes)
            if check:
                _check_hash(file, expected, needed=True)
        except BaseException:
            file.close()
            raise
        return file

    def _read_one(self, file: int, position: int) -> dict[str, Any]:
        return self._read_many(file, np.array([position]))[0]

    def _read_many(self, file: int, positions: Indices) -> Sequence[dict[str, Any]]:
        shard = self._handles.get(file)
        samples = shard.read(positions)
        if self._decode:
            for number, sample in zip(positions.tolist(), samples, strict=True):
                apply_decoders(sample, self._decode, lambda _, n=number: shard.name(n))  # type: ignore[misc]
        return samples

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_handles"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


class _OpenShard:
    """An open shard."""

    def __init__(self, path: str, shard: Shard, content: Content, decode: SampleDecoder) -> None:
        self._path = path
        self._content = content
        self._decode = decode
        table_bytes = 4 * (shard.count + 2)
        if table_bytes > shard.raw.nbytes:
            raise CorruptFileError(f"{path!r} is too short for {shard.count} samples.")
        table = np.frombuffer(content.read_ranges([0], [table_bytes])[0], "<u4")
        offsets = table[1:].astype(np.int64)
        if table[0] != shard.count:
            raise CorruptFileError(
                f"{path!r} has {table[0]} samples, but {_INDEX} lists {shard.count}."
            )
        if (
            offsets[0] < table_bytes
            or offsets[-1] > shard.raw.nbytes
            or (np.diff(offsets) < 0).any()
        ):
            raise CorruptFileError(f"{path!r} is damaged: the offsets of its samples are wrong.")
        self._offsets = offsets

    def name(self, number: int) -> str:
        """Return a text that names a sample."""
        return f"{self._path!r}, sample {number}"

    def read(self, positions: Indices) -> list[dict[str, Any]]:
        """Return samples."""
        starts = self._offsets[positions]
        lengths = self._offsets[positions + 1] - starts
        samples: list[dict[str, Any]] = []
        for data in self._content.read_ranges(starts.tolist(), lengths.tolist()):
            try:
                samples.append(self._decode(data))
            except Exception as error:
                if is_interruption(error):
                    raise
                where = self.name(int(positions[len(samples)]))
                raise CorruptFileError(f"{where}: it cannot be decoded: {error}.") from error
        return samples


def _close(shard: _OpenShard) -> None:
    """Do nothing: the file is unmapped when nothing refers to its memory."""


def _content(path: str) -> bytes:
    if _paths.is_remote(path):
        return read_all(path)
    try:
        with contextlib.closing(LocalFile(path)) as file:
            return file.read(0, file.size)
    except DataFileError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error


def _wrong_length(path: str, found: int, expected: int) -> CorruptFileError:
    return CorruptFileError(
        f"{path!r} has {found} bytes, but {_INDEX} lists {expected}. It may be truncated."
    )


def _check_hash(file: LocalFile | RemoteFile, expected: ShardFile, *, needed: bool) -> None:
    hashing = hasher(expected.hashes, needed=needed)
    if hashing is None:
        return
    computed, name, value = hashing
    for block in blocks(file):
        computed.update(block)
    if computed.hexdigest() != value:
        raise CorruptFileError(
            f"{file.path!r} is damaged: its {name} is {computed.hexdigest()}, but {_INDEX} lists"
            f" {value}."
        )
