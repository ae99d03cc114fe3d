"""ArrayRecord files, read with the `array_record` library."""

import dataclasses
import hashlib
import logging
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, runtime_checkable

import numpy as np

from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._array_record_object import ArrayRecordObject
from wholegrain.sources._errors import CorruptFileError, DataFileError, PathTypeError, explaining
from wholegrain.sources._files import RemoteFile, check_file
from wholegrain.sources._handles import Handles
from wholegrain.sources._identity import changed
from wholegrain.sources._mapping import shrunk
from wholegrain.sources._optional import require
from wholegrain.sources._progress import open_all
from wholegrain.sources._sharded import ShardedDataSource
from wholegrain.sources.remote_options import has_options

_logger = logging.getLogger(__name__)
_RANGE = re.compile(r"(?P<path>.*)\[(?P<start>\d+):(?P<stop>\d+)\]", re.DOTALL)
_FORMAT = "an ArrayRecord file"
# The minimum size of a read: small for a disk, larger for a network.
_BUFFER_BYTES = 4096
_REMOTE_BUFFER_BYTES = 32768


@runtime_checkable
class FileInstruction(Protocol):
    """A part of a file, as TFDS describes it."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


Path = str | os.PathLike[str] | FileInstruction


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """Records `start` to `stop - 1` of a file; to its end if `stop` is unknown."""

    path: str
    start: int = 0
    stop: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Reader:
    """An open file, and how its records are grouped."""

    read: Callable[..., list[bytes]]
    close: Callable[[], None]
    group_size: int
    remote: bool
    path: str
    identity: tuple[int, int]  # device and inode, to detect that another file has replaced it
    size: int

    def check_empty(self, records: list[bytes]) -> list[bytes]:
        """Return records of which some are empty, unless the file was truncated.

        If a file is truncated after it was opened, the library returns empty records past its
        end.
        """
        if not self.remote:
            with suppress_errors(OSError):  # It was removed, so it cannot be truncated.
                now = os.stat(self.path)
                if (now.st_dev, now.st_ino) == self.identity and now.st_size < self.size:
                    raise shrunk(self.path, self.size, now.st_size)
        return records


class ArrayRecordDataSource(ShardedDataSource[bytes]):
    """The records of ArrayRecord files, as bytes, in the order of `paths`.

    Whole files are opened once, when the source is created, to count their records. Ranges of
    files are checked when the file is first read.

    Args:
        paths: A file, or a sequence of files. Each is a path; a part of a file,
            `"file.array_record[100:200]"`; a glob pattern such as `"train-*.array_record"`,
            whose files are sorted by name; a sharded name such as
            `"train.array_record@16"`; or an object with `filename`, `skip`, `take` and
            `examples_in_shard`. Addresses in a store, such as `"s3://..."`, are read as
            `RemoteOptions` say; those in GCS by the library, unless there are options for them.
        reader_options: Options of the `array_record` library's reader, such as
            `{"index_storage_option": "offloaded"}`.

    Example:
        >>> source = ArrayRecordDataSource("data/train-*.array_record")
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1).map(parse)
    """

    def __init__(
        self, paths: Path | Sequence[Path], reader_options: Mapping[str, str] | None = None
    ) -> None:
        self._module = _library()
        self._options = _option_string(reader_options)
        self._parts = _parts(paths)
        self._tags: dict[str, str] = {}
        self._opened: dict[str, ArrayRecordObject] = {}
        self._set_counts(self._count())
        self._readers = Handles(self._open, _close)

    @property
    def paths(self) -> list[str]:
        """The names of the files, without ranges."""
        return [part.path for part in self._parts]

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return self.paths

    def __repr__(self) -> str:
        digest = hashlib.sha1(usedforsecurity=False)
        for part in self._parts:
            digest.update(part.path.encode())
        return f"{type(self).__name__}(hash_of_paths={digest.hexdigest()})"

    def _where(self, index: int) -> tuple[str | None, int]:
        path, position = super()._where(index)
        return path, position + self._parts[bisect_right(self._ends, index)].start

    def _path_of(self, file: int) -> str | None:
        return self._parts[file].path

    def _count(self) -> list[int]:
        """Return the number of records in each part, from the files if it is unknown."""
        whole = [part.path for part in self._parts if part.stop is None]
        if len(whole) > 1:
            counted = dict(zip(whole, open_all(self._count_file, whole, threads=64), strict=True))
        else:
            counted = {path: self._count_file(path) for path in whole}
        return [
            counted[part.path] if part.stop is None else part.stop - part.start
            for part in self._parts
        ]

    def _count_file(self, path: str) -> int:
        reader = self._open_file(path)
        if isinstance(reader, ArrayRecordObject):
            self._tags[path] = reader.tag
            self._opened[path] = reader  # Its index is used by the first read.
            return reader.num_records()
        with explaining(path, _FORMAT):
            count: int = reader.num_records()
            reader.close()
        return count

    def _open_file(self, path: str) -> Any:
        remote = _paths.is_remote(path)
        if remote and (not path.startswith("gs://") or has_options(path)):
            return self._opened.pop(path, None) or self._open_object(path)
        if not remote:
            check_file(path)
        buffer_bytes = _REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES
        reader = self._module.ArrayRecordReader(
            path, self._options, file_reader_buffer_size=buffer_bytes
        )
        if reader.ok():
            return reader
        # A reader that could not open its file reports the reason only when it is closed.
        with explaining(path, _FORMAT):
            reader.close()
            raise ValueError("no reason given")

    def _open_object(self, path: str) -> ArrayRecordObject:
        opened = ArrayRecordObject(RemoteFile(path))
        if opened.tag != self._tags.get(path, opened.tag):
            raise changed(path)
        return opened

    def _open(self, file: int) -> _Reader:
        part = self._parts[file]
        remote = _paths.is_remote(part.path)
        found = None if remote else check_file(part.path)
        reader = self._open_file(part.path)
        with explaining(part.path, _FORMAT):
            count = reader.num_records()
        if part.stop is not None and part.stop > count:
            raise CorruptFileError(
                f"Records {part.start} to {part.stop - 1} of {part.path!r} were requested, but the"
                f" file has {count} records."
            )
        expected = self._ends[file] - (self._ends[file - 1] if file else 0)
        if part.stop is None and count != expected:
            raise CorruptFileError(
                f"{part.path!r} has changed since the source was created: it has {count} records,"
                f" but had {expected}. Create the source again."
            )
        group_size = _group_size(part.path, reader.writer_options_string())
        if group_size > 1:
            _logger.error(
                "%r stores its records in groups of %d, and reading one record decompresses a whole"
                " group. Write it with the option `group_size:1` for random access.",
                part.path,
                group_size,
            )
        return _Reader(
            reader.read,
            reader.close,
            group_size,
            remote,
            part.path,
            (found.st_dev, found.st_ino) if found else (0, 0),
            found.st_size if found else 0,
        )

    def _read_one(self, file: int, position: int) -> bytes:
        reader = self._readers.get(file)
        position += self._parts[file].start
        try:
            # Of the reader's two forms, the list `read([position])` takes time proportional to
            # the number of records in the file; the range does not.
            record = reader.read(position, position + 1)[0]
        except Exception as error:
            self._raise_unreadable(file, position, error)
        return record or reader.check_empty([record])[0]

    def _read_many(self, file: int, positions: Indices) -> Sequence[bytes]:
        part = self._parts[file]
        reader = self._readers.get(file)
        if part.start:
            positions = positions + part.start
        read = reader.read
        try:
            if reader.remote:
                # Over a network the list form is worth its cost, because it reads in parallel.
                records = read(positions.tolist())
            elif reader.group_size > 1:
                records = _read_groups(reader, positions)
            else:
                # One read per record: a range over several groups is slower than single records.
                records = [read(position, position + 1)[0] for position in positions.tolist()]
        except Exception as error:
            if isinstance(error, DataFileError) or is_interruption(error):
                raise
            # Read again one by one, to find the record that failed.
            start = part.start
            return [self._read_one(file, position - start) for position in positions.tolist()]
        return records if all(records) else reader.check_empty(records)

    def _raise_unreadable(self, file: int, position: int, error: Exception) -> NoReturn:
        if isinstance(error, DataFileError) or is_interruption(error):
            raise error
        raise CorruptFileError(
            f"Record {position} of {self._parts[file].path!r} cannot be read; the file may be"
            f" damaged, or have changed since it was opened. The reader's error: {error}"
        ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._readers.close()

    def __getstate__(self) -> dict[str, Any]:
        names = ("parts", "ends", "options", "tags")
        return {name: getattr(self, f"_{name}") for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._module = _library()
        self._parts = state["parts"]
        self._ends = state["ends"]
        self._options = state["options"]
        self._tags = state.get("tags", {})
        self._opened = {}
        self._readers = Handles(self._open, _close)


def _library() -> Any:
    return require(
        "array_record.python.array_record_module",
        extra="array-record",
        purpose="`ArrayRecordDataSource`",
    )


def _close(reader: _Reader) -> None:
    reader.close()


def _read_groups(reader: _Reader, positions: Indices) -> list[bytes]:
    """Read records that are compressed in groups, and decompress each group once."""
    groups = positions // reader.group_size
    starts = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    records: list[bytes] = []
    for start, stop in zip(starts, [*starts[1:], len(positions)], strict=True):
        wanted = positions[start:stop].tolist()
        first = wanted[0]
        group = reader.read(first, wanted[-1] + 1)
        records.extend(group[position - first] for position in wanted)
    return records


def _option_string(options: Mapping[str, str] | None) -> str:
    if options is None:
        options = {}
    if not hasattr(options, "items"):
        raise AttributeError(f"`reader_options` has to be a dict of strings, but got {options!r}.")
    merged = {"readahead_buffer_size": "0", **options}
    if merged.get("index_storage_option") == "offloaded":
        # The library rejects prefetching an index that it does not keep.
        merged.setdefault("footer_prefetch_bytes", "0")
    return ",".join(f"{key}:{value}" for key, value in merged.items())


def _group_size(path: str, writer_options: str | None) -> int:
    """Return how many records are compressed together, from the writer's options."""
    if not writer_options:
        return 1  # files of older writers, which do not store it
    options = dict(option.partition(":")[::2] for option in writer_options.split(","))
    try:
        return max(1, int(options["group_size"]))
    except (KeyError, ValueError):
        raise CorruptFileError(
            f"{path!r} does not store the number of records in a group; its writer's options"
            f" are {writer_options!r}."
        ) from None


def _parts(paths: object) -> list[_Part]:
    if isinstance(paths, (str, os.PathLike)) or _is_instruction(paths):
        paths = [paths]
    if not isinstance(paths, Sequence) or isinstance(paths, bytes):
        raise PathTypeError(
            "`ArrayRecordDataSource` needs a path or a sequence of paths, but got"
            f" {paths!r} of type {type(paths).__name__}."
        )
    if not paths:
        raise ValueError("`ArrayRecordDataSource` needs at least one path, but got none.")
    return [part for path in paths for part in _parts_of(path)]


def _is_instruction(path: object) -> bool:
    return all(hasattr(path, name) for name in ("filename", "skip", "take", "examples_in_shard"))


def _parts_of(path: Any) -> list[_Part]:
    if _is_instruction(path):
        skip, take = int(path.skip), int(path.take)
        return [_checked(_Part(os.fspath(path.filename), skip, skip + take))]
    if not isinstance(path, (str, os.PathLike)):
        raise PathTypeError(
            "`ArrayRecordDataSource` needs paths or file instructions, but one of them is"
            f" {path!r} of type {type(path).__name__}."
        )
    name = os.fspath(path)
    if not isinstance(name, str):
        raise PathTypeError(f"Paths have to be text, but got the bytes {name!r}.")
    if match := _RANGE.fullmatch(name):
        part = _Part(match["path"], int(match["start"]), int(match["stop"]))
        return [_checked(part)]
    return [_checked(_Part(file)) for file in _paths.expand(name)]


def _checked(part: _Part) -> _Part:
    if part.stop is not None and not 0 <= part.start <= part.stop:
        raise ValueError(
            f"A range of a file cannot end before it starts, but got records {part.start}"
            f" to {part.stop} of {part.path!r}."
        )
    return part
