"""Where the rows of text files are: lines, lines that are not blank, and rows of CSV files."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from wholegrain._core.types import Indices, NDArray
from wholegrain.sources._errors import CorruptFileError

BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13
_SPACES = np.zeros(256, bool)
_SPACES[[9, 10, 13, 32]] = True
LONGEST_ROW = 1 << 31


class Rows(NamedTuple):
    """Where the rows of a file are.

    Attributes:
        starts: The offset of each row, and the end of the last one. A row ends where the next one
            starts; that includes the line break, and blank lines that were skipped.
        extra: For each line that is not the first line of a row, the number of the next row.
    """

    starts: Indices
    extra: Indices

    def line(self, row: int) -> int:
        """Return the number of a row's line, counted from 1."""
        return row + 1 + int(np.searchsorted(self.extra, row, side="right"))


class _Collector:
    """Joins what was found in parts of a file."""

    def __init__(self, begin: int) -> None:
        self.count = 0
        self.end = begin
        self._starts: list[Indices] = []
        self._extra: list[Indices] = []

    def add(self, starts: Indices, rows_before_extra: Indices) -> None:
        """Add the offsets of rows, and for each extra line the number of rows before it."""
        self._starts.append(starts)
        self._extra.append(rows_before_extra + self.count)
        self.count += len(starts)

    def rows(self) -> Rows:
        end = np.array([self.end], np.int64)
        empty = np.zeros(0, np.int64)
        return Rows(np.concatenate([*self._starts, end]), np.concatenate([empty, *self._extra]))


def check_encoding(path: str, head: bytes) -> int:
    """Return the length of the byte order mark; raise if the text is not UTF-8."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CorruptFileError(
            f"{path!r} starts with the byte order mark of UTF-16, but text has to be UTF-8."
            f" Convert it, for example with `iconv -f UTF-16 -t UTF-8`."
        )
    return len(BOM) if head.startswith(BOM) else 0


def scan_lines(path: str, blocks: Iterable[bytes], *, skip_blank: bool) -> Rows:
    """Find the lines of a file.

    Args:
        path: The file, for errors.
        blocks: Its content.
        skip_blank: Whether lines of white space are not rows.
    """
    collector: _Collector | None = None
    for text, start in _whole_lines(path, blocks, _last_newline):
        if collector is None:
            start += check_encoding(path, text)
            text = text.removeprefix(BOM)
            collector = _Collector(start)
        array = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(array == _NEWLINE) + 1
        if not len(ends) or ends[-1] != len(text):
            ends = np.append(ends, len(text))  # The last line has no line break.
        begins = np.concatenate([[0], ends[:-1]])
        begins, ends = begins[begins < ends], ends[begins < ends]
        collector.end = start + len(text)
        is_row = np.ones(len(begins), bool)
        if skip_blank:
            for number in np.flatnonzero(_SPACES[array[begins]]).tolist():
                is_row[number] = bool(text[begins[number] : ends[number]].strip(b" \t\r\n"))
        before = np.cumsum(is_row)[~is_row]
        collector.add(begins[is_row] + start, before)
    return _Collector(0).rows() if collector is None else collector.rows()


Cut = Callable[[bytes], int]


def _last_newline(block: bytes) -> int:
    return block.rfind(b"\n") + 1


def _whole_lines(path: str, blocks: Iterable[bytes], cut: Cut) -> Iterator[tuple[bytes, int]]:
    """Yield parts of a content that end with a row, and their offsets.

    Args:
        path: The file, for errors.
        blocks: The content.
        cut: Returns the end of the last row in a block; 0 if no row ends there.
    """
    held: list[bytes] = []
    size = start = 0
    for block in blocks:
        at = cut(block)
        if at:
            text = b"".join([*held, block[:at]])
            yield text, start
            start += len(text)
            held, size = [], 0
            block = block[at:]
        held.append(block)
        size += len(block)
        if size > LONGEST_ROW:
            raise too_long(path, start)
    if size:
        yield b"".join(held), start


def too_long(path: str, start: int) -> CorruptFileError:
    """Return the error for a row that has no end."""
    return CorruptFileError(
        f"{path!r}, the row at byte {start}: it has more than {LONGEST_ROW:,} bytes. Is a"
        " line break missing, or a quote not closed?"
    )


# CSV.


class _IrregularQuotes(Exception):
    """Quotes are not only around fields and doubled inside of them."""


class _Quotes:
    """Finds the ends of CSV rows: line breaks after an even number of quotes.

    This is right if each quote that opens a field is at its begin, and each quote that closes one
    at its end. Two quotes inside a field do not change whether the number is even.
    """

    def __init__(self, quote: int, delimiter: int) -> None:
        self._quote = quote
        self._held = 0  # how many quotes there are in the text since the last end
        self._before = np.zeros(256, bool)
        self._before[[delimiter, _NEWLINE, quote]] = True
        self._after = self._before.copy()
        self._after[_RETURN] = True

    def last_end(self, block: bytes) -> int:
        """Return the end of the last row in the next block; 0 if no row ends there."""
        array = np.frombuffer(block, np.uint8)
        newlines = np.flatnonzero(array == _NEWLINE)
        quotes = np.flatnonzero(array == self._quote)
        newlines = newlines[(np.searchsorted(quotes, newlines) + self._held) % 2 == 0]
        if not len(newlines):
            self._held += len(quotes)
            return 0
        end = int(newlines[-1]) + 1
        self._held = len(quotes) - int(np.searchsorted(quotes, end))
        return end

    def ends(self, array: NDArray[Any]) -> tuple[Indices, Indices]:
        """Return the ends of all rows in a text, and its line breaks inside of rows."""
        quotes = np.flatnonzero(array == self._quote)
        newlines = np.flatnonzero(array == _NEWLINE)
        opening, closing = quotes[::2], quotes[1::2]
        before = array[opening[opening > 0] - 1]
        after = array[closing[closing < len(array) - 1] + 1]
        if not (self._before[before].all() and self._after[after].all()):
            raise _IrregularQuotes
        is_end = np.searchsorted(quotes, newlines) % 2 == 0
        return newlines[is_end] + 1, newlines[~is_end]


def scan_csv(
    path: str, content: Callable[[], Iterable[bytes]], delimiter: str, quotechar: str | None
) -> Rows:
    """Find the rows of a CSV file, including its header; blank lines are not rows.

    Args:
        path: The file, for errors.
        content: Returns the content from its begin.
        delimiter: What separates fields.
        quotechar: What encloses fields; None if nothing does.
    """
    if quotechar is None:
        # No byte of a text in UTF-8 is 255.
        return _scan_regular(path, content(), _Quotes(255, ord(delimiter)))
    try:
        return _scan_regular(path, content(), _Quotes(ord(quotechar), ord(delimiter)))
    except _IrregularQuotes:
        return scan_csv_exactly(path, content(), delimiter, quotechar)


def _scan_regular(path: str, blocks: Iterable[bytes], quotes: _Quotes) -> Rows:
    collector: _Collector | None = None
    for text, start in _whole_lines(path, blocks, quotes.last_end):
        if collector is None:
            start += check_encoding(path, text)
            text = text.removeprefix(BOM)
            collector = _Collector(start)
        array = np.frombuffer(text, np.uint8)
        ends, inner = quotes.ends(array)
        if len(text) and (not len(ends) or ends[-1] != len(text)):
            ends = np.append(ends, len(text))
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
        is_row = np.ones(len(begins), bool)
        firsts = array[begins]
        for number in np.flatnonzero((firsts == _NEWLINE) | (firsts == _RETURN)).tolist():
            is_row[number] = bool(text[begins[number] : ends[number]].strip(b"\r\n"))
        lines = np.sort(np.concatenate([begins[~is_row], inner]))
        collector.end = start + len(text)
        before = np.searchsorted(begins[is_row], lines, side="right")
        collector.add(begins[is_row] + start, before)
    return _Collector(0).rows() if collector is None else collector.rows()


def scan_csv_exactly(
    path: str, blocks: Iterable[bytes], delimiter: str, quotechar: str | None
) -> Rows:
    """Find the rows of a CSV file with Python's `csv` module."""
    lines = _Lines(path, blocks)
    allow_long_fields(LONGEST_ROW)
    reader = csv.reader(lines, **csv_settings(delimiter, quotechar))
    starts: list[int] = []
    extra: list[int] = []
    end = number = 0
    try:
        for row in reader:
            if row:
                starts.append(end or lines.begin)
            more = reader.line_num - number - 1 if row else reader.line_num - number
            extra += [len(starts)] * more
            end, number = lines.end, reader.line_num
    except csv.Error as error:
        raise CorruptFileError(
            f"{path!r}, line {reader.line_num}: it is not valid CSV: {error}."
        ) from error
    return Rows(np.array([*starts, lines.end], np.int64), np.array(extra, np.int64))


class _Lines:
    """The lines of a content, with the offset of the end of the last one."""

    def __init__(self, path: str, blocks: Iterable[bytes]) -> None:
        self._path = path
        self._blocks = blocks
        self.begin = 0
        self.end = 0

    def __iter__(self) -> Iterator[str]:
        for text, start in _whole_lines(self._path, self._blocks, _last_newline):
            if start == 0:
                self.begin = self.end = check_encoding(self._path, text)
                text = text.removeprefix(BOM)
            # Latin-1 maps each byte to one character, and quotes and delimiters are ASCII.
            for line in io.StringIO(text.decode("latin-1"), newline="\n"):
                self.end += len(line)
                yield line


def csv_settings(delimiter: str, quotechar: str | None) -> dict[str, Any]:
    """Return the arguments of `csv.reader`."""
    if quotechar is None:
        return {"delimiter": delimiter, "quoting": csv.QUOTE_NONE}
    return {"delimiter": delimiter, "quotechar": quotechar}


def allow_long_fields(length: int) -> None:
    """Let Python's `csv` module read fields of that length; its default limit is 128 KiB."""
    if csv.field_size_limit() < length:
        csv.field_size_limit(length)
