"""Conversion of Arrow columns to the values of rows.

Values are those of Arrow's `to_numpy()`: numpy scalars for numbers, `str` and `bytes` for text
and binary, arrays for lists. If a number is missing, that conversion turns all integers of the same
chunk into floats, and all bools into Python objects. A `Form` is chosen once for a whole column, so
that the type of its values does not change from chunk to chunk.

Only this module and the readers that use it import pyarrow, and they are imported when a source of
such a format is created.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import NDArray
from wholegrain.sources._errors import CorruptFileError, explaining
from wholegrain.sources._optional import require
from wholegrain.sources._rows import PieceReader

pa: Any = require("pyarrow", extra="arrow", purpose="Reading Arrow data")
_compute: Any = require("pyarrow.compute", extra="arrow", purpose="Reading Arrow data")

Values = NDArray[Any]


class ArrowFileError(CorruptFileError, pa.ArrowInvalid, OSError):  # type: ignore[misc]
    """A file cannot be read as Arrow or Parquet. It is also the type that Arrow raises."""


# Larger integers cannot all be represented as float64.
LARGEST_EXACT = 2**53


class Form(enum.Enum):
    """How the values of a column are converted, after Arrow's own conversion."""

    AS_IS = "as Arrow converts them"
    FLOAT = "floats, NaN where one is missing"
    OBJECT = "integers or bools, None where one is missing"
    LISTS_OF_FLOAT = "arrays of floats, NaN where an item is missing"
    LISTS_OF_OBJECT = "arrays of bools, None where an item is missing"


def item_type(kind: Any) -> Any:
    """Return the type of the items of a list type, and None for other types."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return kind.value_type if is_list else None


def changes_with_nulls(kind: Any) -> bool:
    """Return whether missing values change how values of a type are converted."""
    inner = item_type(kind)
    return _is_integer_or_bool(kind if inner is None else inner)


def _is_integer_or_bool(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def form_of(kind: Any, *, nulls: bool, exact: bool) -> Form:
    """Return the form of a column of type `kind`.

    Args:
        kind: The column's Arrow type.
        nulls: Whether a value, or an item of a list, is missing anywhere in the column.
        exact: Whether all of the column's integers can be converted to float without loss.
    """
    if not nulls or not changes_with_nulls(kind):
        return Form.AS_IS
    inner = item_type(kind)
    if inner is not None:
        return Form.LISTS_OF_OBJECT if pa.types.is_boolean(inner) else Form.LISTS_OF_FLOAT
    return Form.FLOAT if exact and pa.types.is_integer(kind) else Form.OBJECT


def has_nulls(column: Any) -> bool:
    """Return whether a value, or an item of a list, is missing."""
    if item_type(column.type) is None:
        return bool(column.null_count)
    # The items of a missing list are missing too if lists have a fixed size. Other missing
    # lists are None, and change nothing for the rest.
    if column.null_count and pa.types.is_fixed_size_list(column.type):
        return True
    for chunk in column.chunks:
        if chunk.values.null_count:
            chunk.validate(full=True)  # the following code relies on valid list offsets
            if chunk.flatten().null_count:
                return True
    return False


def is_exact(column: Any) -> bool:
    """Return whether all integers of a column can be converted to float without loss."""
    if not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return True
    bounds = _compute.min_max(column)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is None or (low >= -LARGEST_EXACT and high <= LARGEST_EXACT)


def plain(column: Any) -> Any:
    """Return a column without the encodings that Arrow's conversion does not support."""
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_integer_or_bool(kind.value_type):
        column.validate(full=True)
        return column.cast(kind.value_type)
    return column


def to_values(column: Any, form: Form) -> Values:
    """Return the values of a chunked array."""
    if form is Form.OBJECT:
        return _to_objects(column)
    values: Values = column.to_numpy()
    if form is Form.AS_IS:
        return values
    if form is Form.FLOAT:
        return values.astype(np.float64, copy=False)
    dtype: Any = np.float64 if form is Form.LISTS_OF_FLOAT else object
    return _object_array(
        None if items is None else items.astype(dtype, copy=False) for items in values
    )


def _to_objects(column: Any) -> Values:
    missing = column.is_null().to_numpy()
    is_bool = pa.types.is_boolean(column.type)
    filled: Values = column.fill_null(False if is_bool else 0).to_numpy()
    # Python bools, as Arrow returns them, but numpy integers, which keep their size.
    objects = _object_array(filled.tolist() if is_bool else filled)
    objects[missing] = None
    return objects


def _object_array(values: Iterable[Any]) -> Values:
    return np.fromiter(values, dtype=object)


def chosen_types(path: str, schema: Any, columns: Sequence[str] | None) -> dict[str, Any]:
    """Return the types of the columns to read, or raise if a file does not have one of them."""
    with explaining(path, "columns", kind=ArrowFileError):
        names: list[str] = schema.names
        types = {field.name: field.type for field in schema}
        str(list(types.values()))  # field names within structs are strings as well
    if len(set(names)) < len(names):
        raise ValueError(f"{path!r} has several columns with the same name: {names}.")
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise ValueError(f"{path!r} has no column {missing[0]!r}; its columns are {names}.")
    return {name: types[name] for name in (names if columns is None else columns)}


def check_same_columns(readers: Sequence[PieceReader]) -> None:
    """Raise if the columns of files are not the same."""
    first = readers[0]
    for reader in readers[1:]:
        if list(reader.types.items()) != list(first.types.items()):
            raise ValueError(
                "The files of a source must have the same columns with the same types, but"
                f" {_described(first)}, and {_described(reader)}. Choose common columns with"
                " `columns`."
            )


def _described(reader: PieceReader) -> str:
    columns = ", ".join(f"{name}: {kind}" for name, kind in reader.types.items())
    return f"{reader.path!r} has {columns}"


def common_forms(readers: Sequence[PieceReader]) -> dict[str, Form]:
    """Return forms that fit all files, so that types do not change from file to file.

    Columns without a form are not converted further.
    """
    forms = {}
    pieces = [(reader, piece) for reader in readers for piece in range(len(reader.piece_rows))]
    for name, kind in readers[0].types.items():
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not changes_with_nulls(kind):
            continue
        if any(reader.has_nulls(piece, name) for reader, piece in pieces):
            is_wide = pa.types.is_integer(kind) and kind.bit_width == 64
            exact = not is_wide or all(reader.is_exact(piece, name) for reader, piece in pieces)
            forms[name] = form_of(kind, nulls=True, exact=exact)
    return forms
