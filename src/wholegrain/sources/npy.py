"""Arrays saved by NumPy: .npy files, .npz archives, and folders of .npy files."""

import operator
import os
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from wholegrain._core.types import Indices, NDArray
from wholegrain.sources import _paths
from wholegrain.sources._errors import CorruptFileError, missing_file, out_of_range
from wholegrain.sources._sharded import as_indices
from wholegrain.sources.protocol import RandomAccessDataSource

Array = NDArray[Any]


class NpyDataSource(RandomAccessDataSource[Any]):
    """The entries of arrays along their first axis, read from disk as they are needed.

    Of a single array the elements are its entries; of several arrays, dicts of the entries at
    the same index, under the arrays' names. Elements are copies: they can be changed.

    Arrays are mapped into memory, so all processes share what the system has read already.
    Only archives written by `savez_compressed` are loaded as a whole, in each process.

    Args:
        path: A .npy file, an .npz archive, or a folder, of which each .npy file is an array.
        names: Which arrays of an archive or a folder to read, in that order; by default all.

    Example:
        >>> np.savez("digits.npz", image=images, label=labels)
        >>> source = NpyDataSource("digits.npz")
        >>> source[0]["label"]
    """

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str] | None = None) -> None:
        self._path = _paths.to_text(path)
        self._names = None if names is None else list(names)
        self._open()

    def _open(self) -> None:
        self._arrays, self._single = _load(self._path, self._names)
        lengths = {name: len(array) for name, array in self._arrays.items() if array.ndim}
        if len(lengths) < len(self._arrays):
            scalar = next(name for name in self._arrays if name not in lengths)
            raise ValueError(f"The array {scalar!r} of {self._path!r} is a single number.")
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"The arrays of {self._path!r} need the same length, but have {lengths}."
            )
        self._length = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        position = operator.index(index)
        if not 0 <= position < self._length:
            raise out_of_range(position, self._length, repr(self))
        entries = {name: _copied(array[position]) for name, array in self._arrays.items()}
        return entries[""] if self._single else entries

    def __getitems__(self, indices: Sequence[SupportsIndex] | Indices) -> list[Any]:
        """Return the elements at `indices`, in that order."""
        positions = as_indices(indices, self._length, repr(self))
        columns = {name: list(array[positions]) for name, array in self._arrays.items()}
        if self._single:
            return columns[""]
        return [
            dict(zip(columns, entries, strict=True))
            for entries in zip(*columns.values(), strict=True)
        ]

    def __repr__(self) -> str:
        names = "" if self._names is None else f", names={self._names}"
        return f"{type(self).__name__}({self._path!r}{names}, len={self._length})"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._path, "names": self._names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["path"]
        self._names = state["names"]
        self._open()


def _copied(entry: Any) -> Any:
    return entry.copy() if isinstance(entry, np.ndarray) else entry


def _load(path: str, names: Sequence[str] | None) -> tuple[Mapping[str, Array], bool]:
    """Return arrays by name, and whether it is a single one, which has no name."""
    if os.path.isdir(path):
        files = {name[:-4]: name for name in sorted(os.listdir(path)) if name.endswith(".npy")}
        chosen = _chosen(path, list(files), names)
        return {name: _map(os.path.join(path, files[name])) for name in chosen}, False
    if not os.path.exists(path):
        raise missing_file(path)
    if zipfile.is_zipfile(path):
        return _load_archive(path, names), False
    if names is not None:
        raise ValueError(f"{path!r} is a single array, and has no arrays {list(names)}.")
    return {"": _map(path)}, True


def _chosen(path: str, there: Sequence[str], names: Sequence[str] | None) -> Sequence[str]:
    if not there:
        raise missing_file(path, "There are no .npy arrays in it")
    missing = [name for name in names or () if name not in there]
    if missing:
        raise ValueError(f"{path!r} has no array {missing[0]!r}; its arrays are {list(there)}.")
    return there if names is None else names


def _map(path: str) -> Array:
    try:
        with open(path, "rb") as file:
            return _map_member(path, file, 0)
    except (ValueError, EOFError) as error:
        raise _not_an_array(path, error) from error


def _map_member(path: str, member: Any, offset: int) -> Array:
    """Map the array that `member` begins with, which is at `offset` of the file at `path`."""
    shape, fortran, dtype = _read_header(member)
    if dtype.hasobject:
        raise ValueError("the array holds Python objects")
    order: Any = "F" if fortran else "C"
    if 0 in shape:
        return np.empty(shape, dtype, order)  # nothing cannot be mapped
    mapped: Array = np.memmap(path, dtype, "r", offset + member.tell(), shape, order)
    # Indexing the subclass `memmap` is many times slower than indexing a plain array.
    return np.asarray(mapped)


def _not_an_array(path: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"{path!r} cannot be read as an array saved by NumPy; it may be cut off, of another"
        f" format, or hold Python objects. NumPy says: {error}"
    )


def _load_archive(path: str, names: Sequence[str] | None) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
            chosen = _chosen(path, list(members), names)
            return {name: _load_member(path, archive, members[name]) for name in chosen}
    except (zipfile.BadZipFile, EOFError, struct.error) as error:
        raise _not_an_array(path, error) from error


def _load_member(path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    try:
        with archive.open(info) as member:
            if info.compress_type != zipfile.ZIP_STORED:
                return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
            return _map_member(path, member, _start_of_member(path, info))
    except (ValueError, EOFError) as error:
        raise _not_an_array(f"{path}/{info.filename}", error) from error


def _read_header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    reader: Any = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if reader is None:
        raise ValueError(f"version {version} of the format is not known")
    shape, fortran, dtype = reader(member)
    return shape, fortran, dtype


def _start_of_member(path: str, info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member begin: behind a header of its own in the archive."""
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", file.read(4))
    return info.header_offset + 30 + int(name_length) + int(extra_length)
