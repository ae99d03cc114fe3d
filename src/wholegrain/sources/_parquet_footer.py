"""What the footer of a Parquet file says about the values of its columns.

Arrow decodes these statistics too, but a damaged footer can make it end the whole process. Here
only a few of the footer's fields are read, each with a look at where the footer ends.

The footer is a `FileMetaData` of parquet.thrift, in Thrift's compact protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wholegrain.sources._files import RandomFile

# Most footers are shorter: one read does.
_TAIL_BYTES = 1 << 16
_END = b"PAR1"
_DEEPEST = 40

# The types of fields in the compact protocol.
_BOOLS = (1, 2)
_INT8 = 3
_INTEGERS = (4, 5, 6)
_DOUBLE = 7
_BINARY = 8
_LISTS = (9, 10)
_MAP = 11
_STRUCT = 12

# The numbers of the fields to read: values (None), structs (the shape of each), or lists of structs
# (the shape in a list). All others are passed over.
_Shape = Mapping[int, Any]
_MAX, _MIN, _NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 1, 2, 3, 5, 6
_STATISTICS: _Shape = dict.fromkeys((_MAX, _MIN, _NULL_COUNT, _MAX_VALUE, _MIN_VALUE))
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS_OF_COLUMN = 4, 1, 3, 12
_COLUMN: _Shape = {_META_DATA: {_STATISTICS_OF_COLUMN: _STATISTICS}}
_FOOTER: _Shape = {_ROW_GROUPS: [{_COLUMNS: [_COLUMN]}]}


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known about the values of a physical column in a row group."""

    null_count: int | None
    signed_bounds: tuple[bytes, bytes] | None
    """The least and the largest value, as they are stored, if values are compared as signed."""
    bounds: tuple[bytes, bytes] | None
    """The same, if they are compared as the column's type says."""

    def integers(self, *, signed: bool) -> tuple[int, int] | None:
        """Return the least and the largest value of a column of integers, if they are known."""
        bounds = self.bounds or (self.signed_bounds if signed else None)
        if bounds is None or any(len(bound) not in (4, 8) for bound in bounds):
            return None
        low, high = (int.from_bytes(bound, "little", signed=signed) for bound in bounds)
        return low, high


Statistics = list[list[ColumnStatistics]]


def read_statistics(file: RandomFile) -> Statistics | None:
    """Return the statistics of each row group's columns; None if they cannot be read."""
    start = max(0, file.size - _TAIL_BYTES)
    tail = file.read(start, file.size - start)
    if len(tail) < 8 or not tail.endswith(_END):
        return None  # encrypted, or damaged
    length = int.from_bytes(tail[-8:-4], "little")
    if length + 8 > file.size:
        return None
    if length + 8 > len(tail):
        footer = file.read(file.size - 8 - length, length)
    else:
        footer = tail[-8 - length : -8]
    return statistics_of(footer)


def statistics_of(footer: bytes) -> Statistics | None:
    """Return the statistics in a footer; None if it is damaged."""
    try:
        found = _Fields(footer).struct(_FOOTER)
        return [
            [_column_statistics(column) for column in group.get(_COLUMNS, ())]
            for group in found.get(_ROW_GROUPS, ())
        ]
    except (_DamagedError, IndexError):
        return None


def _column_statistics(column: dict[int, Any]) -> ColumnStatistics:
    found = column.get(_META_DATA, {}).get(_STATISTICS_OF_COLUMN, {})
    null_count = found.get(_NULL_COUNT)
    return ColumnStatistics(
        null_count if isinstance(null_count, int) and null_count >= 0 else None,
        _pair(found.get(_MIN), found.get(_MAX)),
        _pair(found.get(_MIN_VALUE), found.get(_MAX_VALUE)),
    )


def _pair(low: object, high: object) -> tuple[bytes, bytes] | None:
    return (low, high) if isinstance(low, bytes) and isinstance(high, bytes) else None


class _DamagedError(Exception):
    """These bytes are no footer."""


class _Fields:
    """Reads a struct in the compact protocol. Reading past the end is an IndexError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, shape: _Shape, depth: int = 0) -> dict[int, Any]:
        """Return the fields that `shape` names, by their numbers."""
        if depth > _DEEPEST:
            raise _DamagedError
        data = self._data
        found: dict[int, Any] = {}
        number = 0
        while head := data[self._at]:
            self._at += 1
            step, kind = head >> 4, head & 15
            number = number + step if step else self._integer()
            if number not in shape:
                self._skip(kind, depth)
            elif (inner := shape[number]) is None:
                found[number] = self._value(kind)
            elif isinstance(inner, list) and kind in _LISTS:
                found[number] = self._structs(inner[0], depth)
            elif isinstance(inner, dict) and kind == _STRUCT:
                found[number] = self.struct(inner, depth + 1)
            else:
                raise _DamagedError
        self._at += 1
        return found

    def _structs(self, shape: _Shape, depth: int) -> list[dict[int, Any]]:
        count, kind = self._list_head()
        if count and kind != _STRUCT:
            raise _DamagedError
        return [self.struct(shape, depth + 1) for _ in range(count)]

    def _value(self, kind: int) -> int | bytes:
        if kind in _INTEGERS:
            return self._integer()
        if kind != _BINARY:
            raise _DamagedError
        start = self._bytes_begin()
        return self._data[start : self._at]

    def _bytes_begin(self) -> int:
        """Pass over the length and the bytes of a binary value; return where these begin."""
        length = self._varint()
        start = self._at
        self._jump(length)
        return start

    def _jump(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at > len(self._data):
            raise _DamagedError

    def _integer(self) -> int:
        folded = self._varint()
        return folded >> 1 ^ -(folded & 1)

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        value = byte & 127
        shift = 7
        while byte > 127:
            if shift > 63:
                raise _DamagedError
            at += 1
            byte = data[at]
            value |= (byte & 127) << shift
            shift += 7
        self._at = at + 1
        return value

    def _list_head(self) -> tuple[int, int]:
        head = self._data[self._at]
        self._at += 1
        count = head >> 4
        return (self._varint() if count == 15 else count), head & 15

    def _skip(self, kind: int, depth: int) -> None:
        """Pass over the value of a field."""
        if kind in _BOOLS:
            return  # The type is the value.
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            self._bytes_begin()
        elif kind == _STRUCT:
            self.struct({}, depth + 1)
        elif kind in _LISTS:
            count, inner = self._list_head()
            self._skip_items(count, (inner,), depth)
        elif kind == _MAP:
            count = self._varint()
            if count:
                kinds = self._data[self._at]
                self._at += 1
                self._skip_items(count, (kinds >> 4, kinds & 15), depth)
        elif kind == _DOUBLE:
            self._jump(8)
        elif kind == _INT8:
            self._jump(1)
        else:
            raise _DamagedError

    def _skip_items(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        if depth > _DEEPEST:
            raise _DamagedError
        # Each takes a byte at least, so this ends where the footer does.
        for _ in range(count):
            for kind in kinds:
                # Among the items of a list a bool is a byte.
                self._skip(_INT8 if kind in _BOOLS else kind, depth + 1)
