"""Arrays saved by NumPy: .npy files, .npz archives, and folders of .npy files."""

import io
import math
import operator
import os
import struct
import zipfile
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from wholegrain._core.types import Indices, NDArray
from wholegrain.sources import _paths
from wholegrain.sources._errors import (
    CorruptFileError,
    check_memory,
    explaining,
    missing_file,
    out_of_range,
)
from wholegrain.sources._files import FileStream, LocalFile
from wholegrain.sources._mapping import MappedFile
from wholegrain.sources._sharded import as_indices
from wholegrain.sources.protocol import RandomAccessDataSource

Array = NDArray[Any]

_MAGIC = b"\x93NUMPY"
_AN_ARRAY = "an array saved by NumPy"
_AN_ARCHIVE = "an archive saved by NumPy"
_BLOCK_BYTES = 1 << 20
# NumPy does not read longer headers either.
_LONGEST_HEADER = 10_000


class NpyDataSource(RandomAccessDataSource[Any]):
    """The entries of arrays along their first axis, read from disk when they are needed.

    For a single array, the elements are its entries. For several arrays, they are dicts of the
    entries at the same index, by array name. Elements are copies, so they may be changed.

    Arrays are memory-mapped, so all processes share the page cache. Only archives written by
    `savez_compressed` are loaded completely, in each process.

    Args:
        path: A .npy file, an .npz archive, or a folder in which each .npy file is an array.
        names: Which arrays of an archive or a folder to read, in that order; by default all.
        check_crc: Whether to read a whole archive when the source is created, and verify its
            checksums, as `np.load` does. Worker processes do not repeat it.

    Example:
        >>> np.savez("digits.npz", image=images, label=labels)
        >>> source = NpyDataSource("digits.npz")
        >>> source[0]["label"]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        check_crc: bool = True,
    ) -> None:
        self._path = _paths.to_text(path)
        if _paths.is_remote(self._path):
            raise ValueError(
                f"Arrays are read from local files, but {self._path!r} is remote. Copy it to a"
                " local disk first."
            )
        self._names = None if names is None else list(names)
        self._open(check_crc)

    def _open(self, check_crc: bool) -> None:
        loaded = _Loader(self._path, check_crc).load(self._names)
        self._arrays, self._files, self._single = loaded
        lengths = {name: len(array) for name, array in self._arrays.items() if array.ndim}
        if len(lengths) < len(self._arrays):
            scalar = next(name for name in self._arrays if name not in lengths)
            raise ValueError(
                f"The array {scalar!r} of {self._path!r} is a scalar, so it has no entries."
            )
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"The arrays of {self._path!r} must have the same length, but have {lengths}."
            )
        self._length = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        position = operator.index(index)
        if not 0 <= position < self._length:
            raise out_of_range(position, self._length, repr(self))
        for file in self._files:
            file.check()
        entries = {name: _copied(array[position]) for name, array in self._arrays.items()}
        return entries[""] if self._single else entries

    def __getitems__(self, indices: Sequence[SupportsIndex] | Indices) -> list[Any]:
        """Return the elements at `indices`, in that order."""
        positions = as_indices(indices, self._length, repr(self))
        for file in self._files:
            file.check()
        columns = {name: list(array[positions]) for name, array in self._arrays.items()}
        if self._single:
            return columns[""]
        return [
            dict(zip(columns, entries, strict=True))
            for entries in zip(*columns.values(), strict=True)
        ]

    @property
    def _shown_paths(self) -> list[str]:
        """The files that reports name."""
        return [self._path]

    def __repr__(self) -> str:
        names = "" if self._names is None else f", names={self._names}"
        return f"{type(self).__name__}({self._path!r}{names}, len={self._length})"

    def __getstate__(self) -> dict[str, Any]:
        layout = {name: (array.shape, array.dtype) for name, array in self._arrays.items()}
        return {"path": self._path, "names": self._names, "layout": layout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["path"]
        self._names = state["names"]
        self._open(check_crc=False)
        found = {name: (array.shape, array.dtype) for name, array in self._arrays.items()}
        if found != state["layout"]:
            raise CorruptFileError(
                f"{self._path!r} has changed since the source was created: its arrays were"
                f" {state['layout']}, and are now {found}. Create the source again."
            )


def _copied(entry: Any) -> Any:
    return entry.copy() if isinstance(entry, np.ndarray) else entry


_Loaded = tuple[dict[str, Array], list[MappedFile], bool]


class _Loader:
    """Opens the arrays at a path, and the files that back them."""

    def __init__(self, path: str, check_crc: bool) -> None:
        self._path = path
        self._check_crc = check_crc
        self._files: list[MappedFile] = []

    def load(self, names: Sequence[str] | None) -> _Loaded:
        """Return arrays by name, their files, and whether it is a single unnamed array."""
        path = self._path
        if os.path.isdir(path):
            files = {name[:-4]: name for name in sorted(os.listdir(path)) if name.endswith(".npy")}
            chosen = _chosen(path, list(files), names)
            arrays = {name: self._map_file(os.path.join(path, files[name])) for name in chosen}
            return arrays, self._files, False
        with FileStream(LocalFile(path)) as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                with explaining(path, _AN_ARRAY):
                    is_archive = zipfile.is_zipfile(stream)
                if is_archive:
                    return self._load_archive(stream, names), self._files, False
            if names is not None:
                raise ValueError(f"{path!r} is a single array, and has no arrays {list(names)}.")
            return {"": self._map_whole(stream)}, self._files, True

    def _map_file(self, path: str) -> Array:
        with FileStream(LocalFile(path)) as stream:
            return self._map_whole(stream)

    def _map_whole(self, stream: FileStream) -> Array:
        mapped = self._mapped(stream)
        stream.seek(0)
        with explaining(mapped.path, _AN_ARRAY):
            return _map_array(mapped, stream, 0, mapped.size)

    def _mapped(self, stream: FileStream) -> MappedFile:
        assert isinstance(stream.file, LocalFile)
        self._files.append(MappedFile(stream.file))
        return self._files[-1]

    def _load_archive(self, stream: FileStream, names: Sequence[str] | None) -> dict[str, Array]:
        mapped = self._mapped(stream)
        with explaining(mapped.path, _AN_ARCHIVE):
            archive = zipfile.ZipFile(stream)
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
        arrays = {}
        for name in _chosen(mapped.path, list(members), names):
            within = f"{mapped.path}/{members[name].filename}"
            with explaining(within, _AN_ARRAY):
                arrays[name] = self._load_member(mapped, archive, members[name], within)
        return arrays

    def _load_member(
        self, file: MappedFile, archive: zipfile.ZipFile, info: zipfile.ZipInfo, within: str
    ) -> Array:
        if info.compress_type != zipfile.ZIP_STORED:
            with archive.open(info) as stream:
                shape, _, dtype = _read_header(stream)
                _check_fits(shape, dtype, stream.tell(), info.file_size)
                check_memory(info.file_size, within, "")
            with archive.open(info) as stream:
                return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
        if self._check_crc:
            with archive.open(info) as stream:
                while stream.read(_BLOCK_BYTES):
                    pass  # verifies the checksum at the end
        start = _start_of_member(file, info)
        with archive.open(info) as stream:
            return _map_array(file, stream, start, info.file_size)


def _chosen(path: str, there: Sequence[str], names: Sequence[str] | None) -> Sequence[str]:
    if not there:
        raise missing_file(path, "It contains no .npy files")
    missing = [name for name in names or () if name not in there]
    if missing:
        raise ValueError(f"{path!r} has no array {missing[0]!r}; its arrays are {list(there)}.")
    return there if names is None else names


def _map_array(file: MappedFile, stream: Any, offset: int, size: int) -> Array:
    """Map the array at the start of a stream of `size` bytes, at `offset` of a file."""
    shape, fortran, dtype = _read_header(stream)
    order: Any = "F" if fortran else "C"
    _check_fits(shape, dtype, stream.tell(), size)
    if 0 in shape or dtype.itemsize == 0:
        return np.empty(shape, dtype, order)  # an empty array cannot be mapped
    return np.ndarray(shape, dtype, file.memory, offset + stream.tell(), order=order)


def _check_fits(shape: tuple[int, ...], dtype: np.dtype[Any], header: int, size: int) -> None:
    needed = dtype.itemsize * math.prod(shape)
    if any(number < 0 for number in shape) or needed > size - header:
        raise ValueError(
            f"an array of shape {shape} and type {dtype} needs {needed} bytes, but {size - header}"
            " follow"
        )


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    elif version == (3, 0):
        shape, fortran, dtype = _read_header_3_0(stream)
    else:
        raise ValueError(f"version {version} of the format is unknown")
    if dtype.hasobject:
        raise ValueError("the array contains Python objects")
    return shape, fortran, dtype


def _read_header_3_0(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a UTF-8 header with NumPy's function for version 2.0, which expects Latin-1."""
    (length,) = struct.unpack("<I", stream.read(4))
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header claims to be {length} bytes long")
    text = stream.read(length).decode("utf-8")
    # The header is a Python literal: escapes in it mean the same in all encodings.
    escaped = text.encode("ascii", "backslashreplace")
    return np.lib.format.read_array_header_2_0(
        io.BytesIO(struct.pack("<I", len(escaped)) + escaped)
    )


def _start_of_member(file: MappedFile, info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member start: after its own header in the archive."""
    name_length, extra_length = struct.unpack_from("<HH", file.memory, info.header_offset + 26)
    return info.header_offset + 30 + int(name_length) + int(extra_length)
