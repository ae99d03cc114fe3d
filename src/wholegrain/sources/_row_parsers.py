"""How rows of text become records: JSON, text and CSV."""

import csv
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from wholegrain.sources._line_scan import allow_long_fields, csv_settings

_decode = json.JSONDecoder().raw_decode


@dataclasses.dataclass(frozen=True)
class TextRow:
    """Parses a line as text."""

    as_bytes: bool = False

    def __call__(self, row: bytes) -> str | bytes:
        """Return a line without its line break."""
        line, _, rest = row.partition(b"\n")
        if rest and rest.strip(b" \t\r\n"):  # Blank lines may follow.
            raise ValueError("It is another line than before: the file was changed in place.")
        line = line.removesuffix(b"\r")
        return line if self.as_bytes else line.decode()


@dataclasses.dataclass(frozen=True)
class JsonRow:
    """Parses a line as JSON."""

    fields: tuple[str, ...] | None = None

    def __call__(self, row: bytes) -> Any:
        """Return the value of a line."""
        text = row.decode()
        try:
            value, end = _decode(text)
            if text[end:].strip(" \t\r\n"):
                value = json.loads(text)
        except ValueError:
            value = self._with_spaces(text)
        if self.fields is None:
            return value
        if not isinstance(value, dict):
            raise ValueError(
                f"It has a value of type {type(value).__name__}, but `fields` are those of a"
                " JSON object."
            )
        get = value.get
        return {name: get(name) for name in self.fields}

    def _with_spaces(self, text: str) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"It is not valid JSON: {error.msg} at character {error.pos + 1}."
            ) from error
        except ValueError as error:
            raise ValueError(f"It is not valid JSON: {error}.") from error


@dataclasses.dataclass(frozen=True)
class CsvRow:
    """Parses a row of CSV.

    Attributes:
        names: The names of all columns.
        fields: The positions and names of the columns to return; None for all.
    """

    names: tuple[str, ...]
    fields: tuple[tuple[int, str], ...] | None
    delimiter: str
    quotechar: str | None

    def __call__(self, row: bytes) -> dict[str, str]:
        """Return the columns of a row."""
        values = csv_values(row, self.delimiter, self.quotechar)
        if len(values) != len(self.names):
            raise ValueError(
                f"It has {len(values)} fields, but there are {len(self.names)} columns:"
                f" {', '.join(self.names)}."
            )
        if self.fields is None:
            return dict(zip(self.names, values, strict=True))
        return {name: values[column] for column, name in self.fields}


def csv_values(row: bytes, delimiter: str, quotechar: str | None) -> Sequence[str]:
    """Return the fields of a row."""
    allow_long_fields(len(row))
    text = row.decode()
    try:
        rows = csv.reader([text], **csv_settings(delimiter, quotechar))
        return next(rows, [])
    except csv.Error as error:
        raise ValueError(f"It is not valid CSV: {error}.") from error


def checked_fields(fields: Sequence[str] | None, of: str) -> tuple[str, ...] | None:
    """Return the names of fields that a user selected."""
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise TypeError(f"`{of}` needs `fields` as a list of names, but got {fields!r}.")
    if not fields:
        raise ValueError(f"`{of}` needs at least one name in `fields`. Leave it out for all.")
    if len(set(fields)) < len(fields):
        raise ValueError(f"`{of}` needs different names in `fields`, but got {fields!r}.")
    return tuple(fields)
