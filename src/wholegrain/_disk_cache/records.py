"""Elements as bytes: arrays as they are in memory, everything else pickled.

    head, padded to 64 bytes | arrays, each aligned to 64 bytes | shapes | pickle of other leaves

The head refers to the layout, a record of its own: the containers of the element, and the dtypes of
its arrays. Elements that differ only in values and shapes share it.
"""

import struct
import zlib
from collections.abc import Callable
from pickle import loads
from typing import Any, NamedTuple

import numpy as np

from wholegrain._workers.layout import Packing, Parts, aligned, builder, flatten, is_array
from wholegrain._workers.pickling import dumps

_HEAD = struct.Struct("<4sIQQQ")  # magic, checksum of the rest, index, place of the layout, pickle
_ELEMENT, _LAYOUT = b"WGel", b"WGla"
_MAX_LAYOUTS = 1024
_unpack_head = _HEAD.unpack_from
_ndarray = np.ndarray
_NO_LAYOUT = 0

BODY_START = 64
"""Where in a record its arrays start."""

START = 64
"""Where the first record of a file may start; 0 therefore means that there is none."""


class DamagedError(Exception):
    """A record is not what was written."""


class Encoded(NamedTuple):
    """An element as bytes, to be appended to a file.

    Attributes:
        data: What to append: the record, after a record with its layout if that is a new one.
        offset: Where the record is in the file.
        nbytes: The length of the record.
        layout: The new layout and its place, for `Encoder.add`.
    """

    data: list[bytes]
    offset: int
    nbytes: int
    layout: tuple[Parts, int] | None


class Encoder:
    """Turns elements into records of one file."""

    def __init__(self) -> None:
        self._layouts: dict[Parts, int] = {}

    def encode(self, index: int, element: Any, end: int) -> Encoded:
        """Return an element as bytes.

        Args:
            index: The index of the element.
            element: The element.
            end: Where the bytes will be in the file: a multiple of 64.

        Raises:
            Exception: If a part of the element cannot be pickled.
        """
        parts: list[Any] = []
        arrays: list[Any] = []
        others: list[Any] = []
        flatten(element, parts, arrays, others, sorts_keys=False)
        if not arrays:
            record = _record(_ELEMENT, index, _NO_LAYOUT, b"", dumps(element))
            return Encoded(record, end, sum(map(len, record)), None)
        dims = [length for part in parts if is_array(part) for length in part[2]]
        rest = struct.pack(f"<{len(dims)}q", *dims)
        if others:
            rest += dumps(others)
        body = Packing(0, arrays).join(arrays)
        key: Parts = tuple([_without_shape(part) for part in parts])
        place = self._layouts.get(key)
        before: list[bytes] = []
        layout = None
        if place is None:
            place, layout = end, (key, end)
            before = _record(_LAYOUT, 0, _NO_LAYOUT, b"", dumps(key))
            nbytes = sum(map(len, before))
            before.append(bytes(aligned(nbytes) - nbytes))
            end += aligned(nbytes)
        record = _record(_ELEMENT, index, place, body, rest)
        return Encoded(before + record, end, sum(map(len, record)), layout)

    def add(self, layout: tuple[Parts, int]) -> None:
        """Let later elements refer to a layout. Call it when the layout is in the file."""
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        key, place = layout
        self._layouts[key] = place


def has_arrays(head: bytes) -> bool:
    """Return whether a record, of which this is the head, contains arrays."""
    return bool(_unpack_head(head)[3] != _NO_LAYOUT)


def _without_shape(part: Any) -> Any:
    return (*part[:2], len(part[2]), *part[3:]) if is_array(part) else part


def _record(kind: bytes, index: int, place: int, body: bytes, rest: bytes) -> list[bytes]:
    checksum = _checksum(index, place, (body, rest))
    head = _HEAD.pack(kind, checksum, index, place, len(rest))
    return [head + bytes(BODY_START - _HEAD.size), body, rest]


def _checksum(index: int, place: int, parts: Any) -> int:
    checksum = zlib.crc32(struct.pack("<QQ", index, place))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


class Decoder:
    """Turns records of one file back into elements.

    Args:
        read: Returns what is in the file at an offset; raises if there are fewer bytes.
    """

    def __init__(self, read: Callable[[int, int], Any]) -> None:
        self._read = read
        self._layouts: dict[int, _Layout] = {}

    def decode(self, index: int, record: Any, verifies: bool) -> Any:
        """Return the element of a record.

        Args:
            index: The index of the element.
            record: The record: bytes, or an array of bytes that arrays of the element may view.
            verifies: Whether to compute the checksum.

        Raises:
            DamagedError: If it is not a record of this element.
        """
        if len(record) < BODY_START:
            raise DamagedError
        magic, checksum, found, place, length = _unpack_head(record)
        stop = len(record) - length
        if magic != _ELEMENT or found != index or stop < BODY_START:
            raise DamagedError
        if verifies:
            _verify(record, checksum, index, place, stop)
        if not place:
            return loads(record[stop:])
        layout = self._layouts.get(place)
        if layout is None:
            layout = self._layout(place)
        return layout.build(record, stop)

    def _layout(self, place: int) -> "_Layout":
        magic, checksum, index, none, length = _unpack_head(self._read(place, BODY_START))
        if magic != _LAYOUT:
            raise DamagedError
        record = self._read(place, BODY_START + length)
        _verify(record, checksum, index, none, BODY_START)
        layout = _Layout(loads(record[BODY_START:]))
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[place] = layout
        return layout


class _Layout:
    """Rebuilds elements of one layout."""

    def __init__(self, parts: Parts) -> None:
        arrays = [part for part in parts if is_array(part)]
        self._arrays = [(dtype, ndim, order) for _, dtype, ndim, order, *_ in arrays]
        self._is_one_array = len(arrays) == 1
        dims = struct.Struct(f"<{sum(ndim for _, ndim, _ in self._arrays)}q")
        self._unpack_dims, self._dims_size = dims.unpack_from, dims.size
        self._build = builder(iter(parts))

    def build(self, record: Any, stop: int) -> Any:
        """Return the element of a record whose arrays end at `stop`.

        Its arrays are views of the record, or of a copy if the record is read-only.
        """
        dims = self._unpack_dims(record, stop)
        others: Any = ()
        if stop + self._dims_size < len(record):
            others = loads(record[stop + self._dims_size :])
        if type(record) is bytes:
            record = bytearray(record)  # Callers may write to arrays. Quicker than `array.copy()`.
        if self._is_one_array:
            dtype, _, order = self._arrays[0]
            arrays: list[Any] = [_ndarray(dims, dtype, record, BODY_START, None, order)]
            return self._build(iter(arrays), iter(others))
        arrays = []
        at, start = 0, BODY_START
        for dtype, ndim, order in self._arrays:
            array: Any = _ndarray(dims[at : at + ndim], dtype, record, start, None, order)
            arrays.append(array)
            at += ndim
            start += aligned(array.nbytes)
        return self._build(iter(arrays), iter(others))


def _verify(record: Any, checksum: int, index: int, place: int, stop: int) -> None:
    """Raise if the checksum of a record is wrong."""
    view = memoryview(record)
    if checksum != _checksum(index, place, (view[BODY_START:stop], view[stop:])):
        raise DamagedError
