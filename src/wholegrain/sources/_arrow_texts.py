"""Columns of text or binary values, read from Arrow's memory one by one."""

import functools
from collections.abc import Iterable
from typing import Any

from wholegrain._core import native
from wholegrain.sources._arrow import Form, Values, pa, to_values


class TextColumn:
    """A column of `str` or `bytes`, each created when it is read."""

    def __init__(self, column: Any) -> None:
        self._column = column

    @functools.cached_property
    def values(self) -> Values:
        """All values, as an array."""
        return to_values(self._column, Form.AS_IS)

    def values_from(self, start: int) -> Iterable[Any]:
        """Return the values from `start` on, one by one."""
        assert native.lib is not None
        chunk, kind = self._column.chunk(0), self._column.type
        _, offsets, content = chunk.buffers()
        return native.lib.Texts(
            offsets,
            b"" if content is None else content,
            chunk.offset + start,
            chunk.offset + len(chunk),
            pa.types.is_large_string(kind) or pa.types.is_large_binary(kind),
            pa.types.is_string(kind) or pa.types.is_large_string(kind),
        )


def text_columns(table: Any) -> dict[str, TextColumn]:
    """Return the columns of a table that can be read one by one, by name.

    They have been validated, so reading a value cannot fail later.
    """
    if native.lib is None:
        return {}
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: TextColumn(column) for name, column in columns if _is_good_text(column)}


def _is_good_text(column: Any) -> bool:
    kind, types = column.type, pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if not is_text and not types.is_binary(kind) and not types.is_large_binary(kind):
        return False
    if column.num_chunks != 1 or column.null_count:
        return False
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False  # Arrow's conversion raises an error that explains the problem.
    return True
