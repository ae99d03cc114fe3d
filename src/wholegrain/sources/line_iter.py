"""JsonlIterDataset, TextLineIterDataset and CsvIterDataset: text files in order."""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain._state.spec import CheckpointSpec
from wholegrain.sources import _paths
from wholegrain.sources._errors import DataFileError
from wholegrain.sources._line_scan import (
    BOM,
    LONGEST_ROW,
    allow_long_fields,
    check_encoding,
    csv_settings,
    too_long,
)
from wholegrain.sources._line_source import bad_row
from wholegrain.sources._row_parsers import TextRow, checked_fields, csv_values
from wholegrain.sources._stream import ContentStream
from wholegrain.sources._stream_iter import START, FilesIterDataset, Position, RecordReader
from wholegrain.sources.csv_rows import check_csv_settings, csv_parser
from wholegrain.sources.jsonl import json_parser

# How many rows are parsed together.
_ROWS_AHEAD = 64


class JsonlIterDataset(FilesIterDataset[Any]):
    """The rows of JSON Lines files, in order.

    Unlike `wholegrain.sources.JsonlDataSource` it needs no index, and no copy of a compressed file;
    but restoring a state decompresses a file from its begin. Workers share the files.

    Args:
        paths: As for `JsonlDataSource`.
        fields: As for `JsonlDataSource`.
        parse: As for `JsonlDataSource`.

    Example:
        >>> ds = JsonlIterDataset("data/*.jsonl.gz", fields=["text"]).map(tokenize)
    """

    checkpoint = CheckpointSpec(fixed=("paths",), free=("parser",))

    def __init__(
        self, paths: _paths.Paths, fields: Sequence[str] | None = None, parse: bool = True
    ) -> None:
        super().__init__(paths)
        self._parser = json_parser(fields, parse, type(self).__name__)

    def open_reader(self, path: str) -> RecordReader:
        return LineReader(path, self._parser, b" \t\r\n")


class TextLineIterDataset(FilesIterDataset[Any]):
    """The lines of text files without their line breaks, in order.

    Args:
        paths: As for `wholegrain.sources.TextLineDataSource`.
        as_bytes: Whether to return bytes instead of text.

    Example:
        >>> ds = TextLineIterDataset("corpus-*.txt.gz").filter(len)
    """

    checkpoint = CheckpointSpec(fixed=("paths",), free=("as_bytes",))

    def __init__(self, paths: _paths.Paths, *, as_bytes: bool = False) -> None:
        super().__init__(paths)
        self._as_bytes = as_bytes

    def open_reader(self, path: str) -> RecordReader:
        return LineReader(path, TextRow(self._as_bytes), None)


class CsvIterDataset(FilesIterDataset[dict[str, str]]):
    """The rows of CSV files, as dicts of text, in order.

    Args:
        paths: As for `wholegrain.sources.CsvDataSource`.
        fields: The columns to return; by default all.
        columns: The names of the columns, if the files do not start with a row of names.
        delimiter: What separates fields: one ASCII character.
        quotechar: What encloses fields: one ASCII character; None if nothing does.

    Example:
        >>> ds = CsvIterDataset("data-*.csv").map(lambda row: float(row["x"]))
    """

    checkpoint = CheckpointSpec(fixed=("paths", "csv"), free=("fields", "columns"))

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
        super().__init__(paths)
        self._fields = checked_fields(fields, type(self).__name__)
        self._columns = None if columns is None else tuple(columns)
        self._csv: dict[str, Any] = {"delimiter": delimiter, "quotechar": quotechar}

    def open_reader(self, path: str) -> RecordReader:
        return CsvReader(path, self._columns, self._fields, **self._csv)


class LineReader(RecordReader):
    """Reads the lines of a file.

    Args:
        path: The file.
        parse: Returns the record of a row.
        blank: The characters of which lines consist that are not records; None if all are.
    """

    def __init__(self, path: str, parse: Callable[[bytes], Any], blank: bytes | None) -> None:
        self._stream = ContentStream(path)
        self._parse = parse
        self._blank = blank
        self.seek(START)

    def seek(self, position: Position) -> None:
        offset, self._line = position
        if not offset:
            offset = check_encoding(self._stream.path, self._stream.read(0, len(BOM)))
        self._offset = offset
        self._rows = self._read_rows()
        self._error = None

    def tell(self) -> Position:
        return Position(self._offset, self._line)

    def is_at_record(self) -> bool:
        if self._offset <= len(BOM) and not self._line:
            return True
        around = self._stream.read(self._offset - 1, 2)
        return around[:1] == b"\n" or len(around) == 1

    def _read_rows(self) -> Iterator[tuple[bytes, int]]:
        """Yield rows with their line breaks, and the numbers of their lines; move over them."""
        for row in self._lines():
            self._offset += len(row)
            self._line += 1
            if self._blank is None or row.strip(self._blank):
                yield row, self._line

    def _lines(self) -> Iterator[bytes]:
        held: list[bytes] = []
        for block in self._stream.blocks(self._offset):
            lines = block.split(b"\n")
            held.append(lines[0])
            if len(lines) > 1:
                yield b"".join(held) + b"\n"
                for line in lines[1:-1]:
                    yield line + b"\n"
                held = [lines[-1]]
        rest = b"".join(held)
        if rest:
            yield rest

    def _take(self, records: list[Any], positions: list[Position]) -> None:
        parse, rows = self._parse, self._rows
        while len(records) < _ROWS_AHEAD:
            try:
                row, line = next(rows)
            except StopIteration:
                return
            except DataFileError:
                self._rows = self._read_rows()  # The exception has ended the generator.
                raise
            try:
                records.append(parse(row))
            except Exception as error:
                if is_interruption(error):
                    raise
                raise bad_row(self._stream.path, line, error) from error
            positions.append(Position(self._offset, self._line))

    def close(self) -> None:
        self._stream.close()


class CsvReader(LineReader):
    """Reads the rows of a CSV file.

    Args:
        path: The file.
        columns: The names of the columns; None if the first row has them.
        fields: The columns to return; None for all.
        delimiter: What separates fields.
        quotechar: What encloses fields; None if nothing does.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None,
        fields: Sequence[str] | None,
        delimiter: str,
        quotechar: str | None,
    ) -> None:
        self._columns = columns
        self._fields = fields
        self._delimiter = delimiter
        self._quotechar = quotechar
        super().__init__(path, bytes, b"\r\n")

    def seek(self, position: Position) -> None:
        super().seek(position)
        if position.offset:
            return
        columns, of = self._columns, "`CsvIterDataset`"
        if columns is None:
            of = repr(self._stream.path)
            row, line = next(self._rows, (b"", 0))
            if not row:
                return
            try:
                columns = csv_values(row, self._delimiter, self._quotechar)
            except ValueError as error:
                raise bad_row(self._stream.path, line, error) from error
        self._parse = csv_parser(of, columns, self._fields, self._delimiter, self._quotechar)

    def _read_rows(self) -> Iterator[tuple[bytes, int]]:
        quote = None if self._quotechar is None else self._quotechar.encode()
        lines = self._lines()
        for line in lines:
            row, number = line, self._line + 1
            if quote is not None and quote in line:
                taken = self._quoted_row(line, lines)
                row = b"".join(taken)
                self._line += len(taken) - 1
            self._offset += len(row)
            self._line += 1
            if row.strip(b"\r\n"):
                yield row, number

    def _quoted_row(self, line: bytes, lines: Iterator[bytes]) -> list[bytes]:
        """Return the lines of a row, of which the first is given."""
        taken: list[bytes] = []

        def texts() -> Iterator[str]:
            size = 0
            for each in itertools.chain([line], lines):
                taken.append(each)
                size += len(each)
                if size > LONGEST_ROW:
                    raise too_long(self._stream.path, self._offset)
                allow_long_fields(size)
                # Latin-1 maps each byte to one character, and quotes and delimiters are ASCII.
                yield each.decode("latin-1")

        settings = csv_settings(self._delimiter, self._quotechar)
        # Parsing the row again will report the error.
        with contextlib.suppress(csv.Error):
            next(csv.reader(texts(), **settings), None)
        return taken
