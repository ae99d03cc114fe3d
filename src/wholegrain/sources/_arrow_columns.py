"""Rows from Arrow columns in any order, converting only what is read."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources._arrow import Form, Values, item_type, pa, to_values
from wholegrain.sources._row_maker import Row, make_rows

# The approximate overhead of a Python object.
_OBJECT_BYTES = 64
# For fewer rows, numpy's fixed costs exceed what it saves.
_FEW = 8


class Columns:
    """Columns of equal length, from which rows are taken.

    The receiver owns the values of a row: they are either read-only or created for each
    read.

    Args:
        names: The columns' names.
        columns: Chunked arrays.
        forms: How to convert their values.
        check: Called before each read if the columns are views of a memory-mapped file, which may
            be truncated; rows then contain copies.
    """

    def __init__(
        self,
        names: Sequence[str],
        columns: Sequence[Any],
        forms: Sequence[Form],
        check: Callable[[], None] | None = None,
    ) -> None:
        self._names = list(names)
        self._check = check
        copies = check is not None
        pairs = zip(columns, forms, strict=True)
        self._columns = [_column(column, form, copies) for column, form in pairs]
        self._named = list(zip(self._names, self._columns, strict=True))
        self.nbytes = sum(column.nbytes for column in self._columns)

    def row(self, index: int) -> Row:
        """Return the row at `index`."""
        if self._check is not None:
            self._check()
        return {
            name: column.one(index) for name, column in zip(self._names, self._columns, strict=True)
        }

    def rows(self, indices: Indices) -> list[Row]:
        """Return the rows at `indices`, in that order."""
        if len(indices) < _FEW:
            return [self.row(index) for index in indices.tolist()]
        if self._check is not None:
            self._check()
        if not self._columns:
            return [{} for _ in indices]  # `zip` of nothing has no rows.
        columns = [column.many(indices) for column in self._columns]
        return make_rows(self._names, zip(*columns, strict=True))


class _Column(abc.ABC):
    nbytes: int

    @abc.abstractmethod
    def one(self, index: int) -> Any:
        """Return the value at `index`."""

    @abc.abstractmethod
    def many(self, indices: Indices) -> Sequence[Any] | Values:
        """Return the values at `indices`."""


class _Converted(_Column):
    """Values that were converted all at once."""

    def __init__(self, column: Any, form: Form) -> None:
        self._values = to_values(column, form)
        self.nbytes = self._values.nbytes
        if self._values.dtype == object:
            self.nbytes += column.nbytes + _OBJECT_BYTES * len(column)

    def one(self, index: int) -> Any:
        return self._values[index]

    def many(self, indices: Indices) -> Values:
        return self._values[indices]


class _Text(_Column):
    """Strings or bytes, copied from Arrow's memory."""

    def __init__(self, array: Any, encoding: str | None) -> None:
        self.nbytes = array.nbytes
        self._encoding = encoding
        self._missing = _missing(array)
        _, offsets, data = array.buffers()
        self._data = memoryview(b"" if data is None else data)
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        self._offsets = _numbers(offsets, np.int64 if wide else np.int32, array)

    def one(self, index: int) -> Any:
        if self._missing is not None and self._missing[index]:
            return None
        part = self._data[self._offsets[index] : self._offsets[index + 1]]
        return bytes(part) if self._encoding is None else str(part, self._encoding)

    def many(self, indices: Indices) -> Sequence[Any]:
        if self._missing is not None:
            return [self.one(index) for index in indices.tolist()]
        data, encoding = self._data, self._encoding
        starts, stops = self._offsets[indices].tolist(), self._offsets[indices + 1].tolist()
        pairs = zip(starts, stops, strict=True)
        if encoding is None:
            return [bytes(data[start:stop]) for start, stop in pairs]
        return [str(data[start:stop], encoding) for start, stop in pairs]


class _Lists(_Column):
    """Lists of numbers: read-only views of Arrow's memory, or copies."""

    def __init__(self, array: Any, copies: bool) -> None:
        self.nbytes = array.nbytes
        self._copies = copies
        self._missing = _missing(array)
        self._items: Values = array.values.to_numpy(zero_copy_only=False)
        self._items.flags.writeable = False
        if pa.types.is_fixed_size_list(array.type):
            steps = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64)
            self._offsets = steps * array.type.list_size
        else:
            wide = pa.types.is_large_list(array.type)
            self._offsets = _numbers(array.buffers()[1], np.int64 if wide else np.int32, array)

    def one(self, index: int) -> Any:
        if self._missing is not None and self._missing[index]:
            return None
        items = self._items[self._offsets[index] : self._offsets[index + 1]]
        return items.copy() if self._copies else items

    def many(self, indices: Indices) -> Sequence[Any]:
        if self._missing is not None:
            return [self.one(index) for index in indices.tolist()]
        items = self._items
        starts, stops = self._offsets[indices].tolist(), self._offsets[indices + 1].tolist()
        pairs = zip(starts, stops, strict=True)
        if self._copies:
            return [items[start:stop].copy() for start, stop in pairs]
        return [items[start:stop] for start, stop in pairs]


class _Nested(_Column):
    """Mutable values: each read converts them again."""

    def __init__(self, array: Any, form: Form) -> None:
        self.nbytes = array.nbytes
        self._array = array
        self._form = form

    def one(self, index: int) -> Any:
        return self.many(np.array([index]))[0]

    def many(self, indices: Indices) -> Values:
        taken = self._array.take(pa.array(indices))
        chunked = taken if isinstance(taken, pa.ChunkedArray) else pa.chunked_array([taken])
        return to_values(chunked, self._form)


def _column(column: Any, form: Form, copies: bool) -> _Column:
    """Return a chunked array as a column to read values from."""
    kind, types = column.type, pa.types
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    is_one_piece = not isinstance(array, pa.ChunkedArray)  # a huge column stays in several chunks
    if is_one_piece and (types.is_string(kind) or types.is_large_string(kind)):
        return _Text(array, "utf-8")
    if is_one_piece and (types.is_binary(kind) or types.is_large_binary(kind)):
        return _Text(array, None)
    items = item_type(kind)
    is_of_numbers = items is not None and (types.is_integer(items) or types.is_floating(items))
    if is_one_piece and is_of_numbers and form is Form.AS_IS:
        return _Lists(array, copies)
    # Arrow's conversions do not check their input, so validate it first.
    column.validate(full=True)
    if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return _Nested(array, form)
    return _Converted(column, form)


def _missing(array: Any) -> Values | None:
    missing: Values = array.is_null().to_numpy(zero_copy_only=False)
    return missing if array.null_count else None


def _numbers(buffer: Any, dtype: Any, array: Any) -> Values:
    """Return the offsets of an array's values: one more than there are values."""
    if buffer is None or len(array) == 0:
        return np.zeros(1, dtype=dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]
