"""Reads the statistics of columns from the footer of a Parquet file.

Arrow decodes these statistics too, but a damaged footer can make it abort the whole process. Here
only a few of the footer's fields are read, with bounds checks. Whether a footer is valid as a whole
is for Arrow to say: it checks fields that are skipped here.

The footer is a `FileMetaData` of parquet.thrift, in Thrift's compact protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wholegrain.sources._files import RandomFile

# Most footers are shorter, so that one read is enough.
_TAIL_BYTES = 1 << 16
_END = b"PAR1"
_DEEPEST = 40

# The types of fields in the compact protocol.
_BOOLS = (1, 2)
_INT8 = 3
_INT64 = 6
_INTEGERS = (4, 5, 6)
_DOUBLE = 7
_BINARY = 8
_LISTS = (9, 10)
_MAP = 11
_STRUCT = 12

# The numbers of the fields to read: values (their type), structs (the shape of each), or lists of
# structs (the shape in a list). All others are skipped, and fields of another type, as in Arrow.
_Shape = Mapping[int, Any]
_MAX, _MIN, _NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 1, 2, 3, 5, 6
_STATISTICS: _Shape = {
    **dict.fromkeys((_MAX, _MIN, _MAX_VALUE, _MIN_VALUE), _BINARY),
    _NULL_COUNT: _INT64,
}
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS_OF_COLUMN = 4, 1, 3, 12
_COLUMN: _Shape = {_META_DATA: {_STATISTICS_OF_COLUMN: _STATISTICS}}
_FOOTER: _Shape = {_ROW_GROUPS: [{_COLUMNS: [_COLUMN]}]}


@dataclass(frozen=True)
class ColumnStatistics:
    """The statistics of a physical column in a row group."""

    null_count: int | None
    signed_bounds: tuple[bytes, bytes] | None
    """The smallest and the largest value, as stored, if values are compared as signed."""
    bounds: tuple[bytes, bytes] | None
    """The same, if they are compared in the order of the column's type."""

    def integers(self, *, signed: bool) -> tuple[int, int] | None:
        """Return the smallest and the largest value of an integer column, if they are known."""
        bounds = self.bounds or (self.signed_bounds if signed else None)
        if bounds is None or any(len(bound) not in (4, 8) for bound in bounds):
            return None
        low, high = (int.from_bytes(bound, "little", signed=signed) for bound in bounds)
        return low, high


Statistics = list[list[ColumnStatistics]]


def read_footer(file: RandomFile) -> bytes | None:
    """Return the footer of a file; None if the file is encrypted or damaged."""
    start = max(0, file.size - _TAIL_BYTES)
    tail = file.read(start, file.size - start)
    if len(tail) < 8 or not tail.endswith(_END):
        return None
    length = int.from_bytes(tail[-8:-4], "little")
    if length + 8 > file.size:
        return None
    if length + 8 > len(tail):
        return file.read(file.size - 8 - length, length)
    return tail[-8 - length : -8]


def as_file(footer: bytes) -> bytes:
    """Return a file that has nothing but a footer."""
    return _END + footer + len(footer).to_bytes(4, "little") + _END


def statistics_of(footer: bytes) -> Statistics | None:
    """Return the statistics of each row group's columns in a footer; None if it is damaged."""
    try:
        found, _ = _struct(footer, 0, _FOOTER)
        if _ROW_GROUPS not in found:
            return None
        return [
            [_column_statistics(column) for column in group.get(_COLUMNS, ())]
            for group in found[_ROW_GROUPS]
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
    """The bytes are not a valid footer."""


def _struct(data: bytes, at: int, shape: _Shape) -> tuple[dict[int, Any], int]:
    """Return the fields that `shape` names, by their numbers, and the offset after the struct.

    Reading past the end raises IndexError.
    """
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        inner = shape.get(number)
        if inner == kind:
            found[number], at = _value(data, at, kind)
        elif isinstance(inner, list) and kind in _LISTS:
            found[number], at = _structs(data, at, inner[0])
        elif isinstance(inner, dict) and kind == _STRUCT:
            found[number], at = _struct(data, at, inner)
        else:
            at = _after(data, at, kind, 0)
    return found, at + 1


def _structs(data: bytes, at: int, shape: _Shape) -> tuple[list[dict[int, Any]], int]:
    count, kind, at = _list_head(data, at)
    if count and kind != _STRUCT:
        raise _DamagedError
    structs = []
    for _ in range(count):  # Each takes at least a byte, so this ends at the end of the footer.
        struct, at = _struct(data, at, shape)
        structs.append(struct)
    return structs, at


def _value(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind in _INTEGERS:
        return _integer(data, at)
    length, at = _varint(data, at)
    return data[at : at + length], at + length


def _integer(data: bytes, at: int) -> tuple[int, int]:
    folded, at = _varint(data, at)
    return folded >> 1 ^ -(folded & 1), at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the length of a list, the type of its items, and the offset of the first one."""
    head = data[at]
    if head < 0xF0:
        return head >> 4, head & 15, at + 1
    count, at = _varint(data, at + 1)
    return count, head & 15, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer, and the offset after it."""
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
    return value, at + 1


# Nearly all of a footer is skipped, so this is written for speed. It may return an offset past the
# end, where the next access raises IndexError.
def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return the offset after the value of a field."""
    if kind in _INTEGERS:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in _BOOLS:
        return at  # The type itself is the value.
    if kind == _DOUBLE:
        return at + 8
    if kind == _INT8:
        return at + 1
    if depth > _DEEPEST:
        raise _DamagedError
    if kind == _STRUCT:
        return _after_struct(data, at, depth + 1)
    if kind in _LISTS:
        count, inner, at = _list_head(data, at)
        return _after_items(data, at, count, (inner,), depth + 1)
    if kind == _MAP:
        count, at = _varint(data, at)
        if count == 0:
            return at
        return _after_items(data, at + 1, count, (data[at] >> 4, data[at] & 15), depth + 1)
    raise _DamagedError


def _after_struct(data: bytes, at: int, depth: int) -> int:
    while head := data[at]:
        at += 1
        if head < 16:  # The number of the field follows.
            _, at = _varint(data, at)
        if 4 <= head & 15 <= 6:  # Integers, the most common fields.
            while data[at] > 127:
                at += 1
            at += 1
        else:
            at = _after(data, at, head & 15, depth)
    return at + 1


def _after_items(data: bytes, at: int, count: int, kinds: tuple[int, ...], depth: int) -> int:
    # In a list, a bool takes a byte.
    kinds = tuple([_INT8 if kind in _BOOLS else kind for kind in kinds])
    for _ in range(count):
        for kind in kinds:
            at = _after(data, at, kind, depth)
        if at > len(data):
            raise _DamagedError
    return at
