"""CSV files as a source."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain.sources import _paths
from wholegrain.sources._content import Content, Scan
from wholegrain.sources._errors import CorruptFileError
from wholegrain.sources._index import Arrays, Index
from wholegrain.sources._line_scan import scan_csv
from wholegrain.sources._line_source import LineDataSource, OpenRows, bad_row
from wholegrain.sources._row_parsers import CsvRow, checked_fields, csv_values


class CsvDataSource(LineDataSource[dict[str, str]]):
    """The rows of CSV files, as dicts of text, in any order.

    Quoted fields may contain line breaks; the rows are those of Python's `csv` module. Blank lines
    are skipped. Index, compression and encoding are those of `JsonlDataSource`. A row whose number
    of fields is not that of the columns is an error when it is read.

    Args:
        paths: As for `JsonlDataSource`. All files have the same columns.
        fields: The columns to return; by default all.
        columns: The names of the columns, if the files do not start with a row of names.
        delimiter: What separates fields: one ASCII character.
        quotechar: What encloses fields: one ASCII character; None if nothing does.

    Example:
        >>> source = CsvDataSource("data.csv", fields=["text", "label"])
        >>> ds = wg.MapDataset.source(source).map(lambda row: (row["text"], int(row["label"])))
    """

    _kind = "csv"

    def __init__(
        self,
        paths: _paths.Paths,
        fields: Sequence[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        quotechar: str | None = '"',
    ) -> None:
        check_csv_settings(type(self).__name__, delimiter, quotechar)
        self._settings = {"delimiter": delimiter, "quotechar": quotechar}
        self._header = 1 if columns is None else 0
        fields = checked_fields(fields, type(self).__name__)
        super().__init__(paths)
        of = f"`{type(self).__name__}`" if columns is not None else repr(self._files[0])
        if columns is None:
            columns = self._common_columns()
        self._parser = csv_parser(of, columns, fields, delimiter, quotechar)

    def _common_columns(self) -> tuple[str, ...]:
        columns: dict[str, tuple[str, ...]] = {}
        for number, path in enumerate(self._files):
            opened: OpenRows = self._handles.get(number)
            if opened.count <= 0:
                continue
            row = opened.read(np.array([0]), 0)[0]
            try:
                columns[path] = tuple(csv_values(row, **self._settings))
            except ValueError as error:
                raise bad_row(path, opened.line(0, 0), error) from error
        first = next(iter(columns), None)
        for path, names in columns.items():
            if first is not None and names != columns[first]:
                raise CorruptFileError(
                    f"{path!r} has the columns {', '.join(names)}, but {first!r} has"
                    f" {', '.join(columns[first])}."
                )
        return columns[first] if first is not None else ()

    def _build(self, scan: Scan, path: str) -> tuple[dict[str, Any], Arrays]:
        return {}, scan_csv(path, lambda: scan, **self._settings)._asdict()

    def _count(self, index: Index) -> int:
        return max(0, super()._count(index) - self._header)

    def _opened(self, path: str, content: Content, index: Index) -> OpenRows:
        return OpenRows(path, content, index, self._header)


def check_csv_settings(of: str, delimiter: str, quotechar: str | None) -> None:
    """Raise if the settings of a CSV file cannot be used."""
    for name, value in (("delimiter", delimiter), ("quotechar", quotechar)):
        if value is None and name == "quotechar":
            continue
        is_one = isinstance(value, str) and len(value) == 1 and value.isascii()
        if not is_one or value in ("\r", "\n", "\0"):
            raise ValueError(f"`{of}` needs one ASCII character as `{name}`, but got {value!r}.")
    if delimiter == quotechar:
        raise ValueError(f"`{of}` needs different characters as `delimiter` and `quotechar`.")


def csv_parser(
    of: str,
    columns: Sequence[str],
    fields: Sequence[str] | None,
    delimiter: str,
    quotechar: str | None,
) -> CsvRow:
    """Return what parses the rows of CSV files.

    Args:
        of: What has the columns, for errors.
        columns: Their names.
        fields: The columns to return; None for all.
        delimiter: What separates fields.
        quotechar: What encloses fields; None if nothing does.
    """
    names = tuple(columns)
    if len(set(names)) < len(names):
        raise ValueError(f"{of} needs columns with different names, but they are {names}.")
    if fields is None:
        return CsvRow(names, None, delimiter, quotechar)
    missing = [name for name in fields if name not in names]
    if missing:
        raise ValueError(f"{of} has no column {missing[0]!r}. The columns are {', '.join(names)}.")
    chosen = tuple((names.index(name), name) for name in fields)
    return CsvRow(names, chosen, delimiter, quotechar)
