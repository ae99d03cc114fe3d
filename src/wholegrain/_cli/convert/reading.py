"""The input of a conversion: spans of records, as bytes or as batches of columns."""

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wholegrain import sources
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format, Found, open_source
from wholegrain._shards.writing import arrow
from wholegrain.sources._errors import explaining
from wholegrain.sources._files import LocalFile, check_file
from wholegrain.sources._mapping import MappedFile
from wholegrain.sources._optional import require

# The number of records read together; the output does not depend on it.
_RECORDS_AT_ONCE = 256
SINGLE_ARRAY = "value"


class _JsonLines:
    """The lines of JSON Lines files as bytes."""

    def __init__(self, found: Found) -> None:
        self._source = sources.JsonlDataSource(found.files, parse=False)

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, indices: Any) -> list[bytes]:
        return [text.encode() for text in self._source.__getitems__(indices)]


class BytesReader:
    """Records of bytes; for a folder, with their names."""

    schema: Any = None

    def __init__(self, found: Found) -> None:
        # Damaged records are not copied.
        self.is_json = found.format is Format.JSONL
        self._source = _JsonLines(found) if self.is_json else open_source(found, check=True)
        is_folder = found.format is Format.FOLDER
        self.names: list[str] | None = getattr(self._source, "names", None) if is_folder else None
        self.count = len(self._source)

    def read(self, start: int, stop: int) -> Iterator[list[bytes]]:
        """Yield the records from `start` to `stop - 1`, some at a time."""
        for at in range(start, stop, _RECORDS_AT_ONCE):
            yield self._source.__getitems__(np.arange(at, min(at + _RECORDS_AT_ONCE, stop)))


class ColumnsReader:
    """Rows of Parquet and Arrow files in Arrow's representation, which keeps all types."""

    def __init__(self, found: Found) -> None:
        opener = _ParquetFile if found.format is Format.PARQUET else _ArrowFile
        self._files = [opener(file) for file in found.files]
        first = self._files[0]
        for file in self._files[1:]:
            if not file.schema.equals(first.schema):
                raise BadInput(
                    f"The files of a conversion must have the same columns, but {first.path!r} has"
                    f" {_described(first.schema)}, and {file.path!r} {_described(file.schema)}."
                )
        if len(set(first.schema.names)) < len(first.schema.names):
            raise BadInput(
                f"{first.path!r} has several columns with the same name: {first.schema.names}."
            )
        self.schema = _plain_schema(first.schema)
        self._pieces = [
            (file, piece, rows)
            for file in self._files
            for piece, rows in enumerate(file.piece_rows)
        ]
        self._ends = np.cumsum([rows for _, _, rows in self._pieces], dtype=np.int64)
        self.count = int(self._ends[-1]) if self._pieces else 0

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yield tables of the rows from `start` to `stop - 1`."""
        number = int(self._ends.searchsorted(start, side="right"))
        while start < stop:
            file, piece, rows = self._pieces[number]
            first = int(self._ends[number]) - rows
            until = min(stop, first + rows)
            if until > start:
                table = _plain(file.read(piece), self.schema)
                yield table.slice(start - first, until - start)
            start, number = until, number + 1


class _ParquetFile:
    def __init__(self, path: str) -> None:
        self.path = path
        parquet = require("pyarrow.parquet", extra="parquet", purpose="Converting Parquet files")
        with explaining(path, "Parquet"):
            check_file(path)
            self._file = parquet.ParquetFile(path, memory_map=False)
            metadata = self._file.metadata
            self.schema = self._file.schema_arrow
            groups = range(metadata.num_row_groups)
            self.piece_rows = [int(metadata.row_group(group).num_rows) for group in groups]

    def read(self, piece: int) -> Any:
        with explaining(self.path, "Parquet", f", row group {piece}"):
            return self._file.read_row_group(piece, use_threads=False)


class _ArrowFile:
    def __init__(self, path: str) -> None:
        self.path = path
        pa = arrow()
        ipc = require("pyarrow.ipc", extra="arrow", purpose="Converting Arrow files")
        with explaining(path, "an Arrow file"), contextlib.closing(LocalFile(path)) as file:
            self._mapped = MappedFile(file)
            memory = pa.py_buffer(self._mapped.memory)
            if memory[:6].to_pybytes() == b"ARROW1":
                reader = ipc.open_file(pa.BufferReader(memory))
                batches = [reader.get_batch(piece) for piece in range(reader.num_record_batches)]
            else:
                reader = ipc.open_stream(pa.BufferReader(memory))
                batches = list(reader)
            self.schema = reader.schema
            self._batches = batches
            self.piece_rows = [int(batch.num_rows) for batch in batches]

    def read(self, piece: int) -> Any:
        batch = self._batches[piece]
        self._mapped.check()
        with explaining(self.path, "an Arrow file"):
            batch.validate(full=True)  # the following code relies on valid lengths and offsets
        return arrow().Table.from_batches([batch])


class ArraysReader:
    """The entries of NumPy arrays as columns; entries with several axes become lists."""

    def __init__(self, found: Found) -> None:
        self._source = open_source(found)
        self.count = len(self._source)
        if not self.count:
            raise BadInput(f"{found.path!r} has no entries to convert.")
        self.schema = self._table(self._source.__getitems__([0])).schema

    def _table(self, entries: Sequence[Any]) -> Any:
        rows = [entry if isinstance(entry, dict) else {SINGLE_ARRAY: entry} for entry in entries]
        return arrow().table(
            {name: _column(np.stack([row[name] for row in rows])) for name in rows[0]}
        )

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yield tables of the entries from `start` to `stop - 1`."""
        for at in range(start, stop, _RECORDS_AT_ONCE):
            indices = np.arange(at, min(at + _RECORDS_AT_ONCE, stop))
            yield self._table(self._source.__getitems__(indices))


def _column(array: Any) -> Any:
    pa = arrow()
    if array.dtype.kind == "U" and array.ndim == 1:
        return pa.array(array.tolist())
    try:
        column = pa.array(np.ascontiguousarray(array).ravel())
    except pa.ArrowException as error:
        raise BadInput(
            f"Arrays of {array.dtype} cannot be converted to columns: {error}."
        ) from error
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, int(size))
    return column


class RowsReader:
    """The rows of sources that return dicts: CSV, tar and MDS files."""

    def __init__(self, found: Found) -> None:
        self._source = open_source(found, check=True)
        self.count = len(self._source)
        if not self.count:
            raise BadInput(f"{found.path!r} has no records to convert.")
        encodings = self._source.columns.items() if found.format is Format.MDS else ()
        self._json = {name for name, kind in encodings if kind == "json"}
        as_text = ("str_int", "str_decimal")
        self._numbers_as_text = {name for name, kind in encodings if kind in as_text}
        if found.format is Format.MDS:
            self.schema = mds_schema(found.path, self._source)
        elif found.format is Format.TAR:
            self.schema = self._schema_of_samples()
        else:
            self.schema = arrow().schema([(name, arrow().string()) for name in self._source[0]])

    def _schema_of_samples(self) -> Any:
        """Return the key of samples and all their fields."""
        pa = arrow()
        names = dict.fromkeys(name for sample in self._source for name in sample)
        fields = [name for name in names if name not in ("__key__", "__url__")]
        return pa.schema([("__key__", pa.string()), *((name, pa.binary()) for name in fields)])

    def _value(self, row: dict[str, Any], name: str) -> Any:
        value = row.get(name)
        if name in self._json:
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, (np.ndarray, np.generic)):
            return value.tolist()
        is_text = name in self._numbers_as_text
        return str(value) if is_text else value

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yield tables of the rows from `start` to `stop - 1`."""
        pa = arrow()
        for at in range(start, stop, _RECORDS_AT_ONCE):
            indices = np.arange(at, min(at + _RECORDS_AT_ONCE, stop))
            rows = self._source.__getitems__(indices)
            columns = {
                field.name: pa.array([self._value(row, field.name) for row in rows], field.type)
                for field in self.schema
            }
            yield pa.table(columns, schema=self.schema)


def mds_schema(path: str, source: Any) -> Any:
    """Return the columns of an MDS dataset; JSON and numbers of any size become text."""
    pa = arrow()
    first = source[0]
    fields = []
    for name, encoding in source.columns.items():
        kind = encoding.partition(":")[0]
        value = first[name]
        if isinstance(value, np.ndarray):
            column = pa.from_numpy_dtype(value.dtype)
            for _ in value.shape:
                column = pa.list_(column)
        elif isinstance(value, np.generic):
            column = pa.from_numpy_dtype(value.dtype)
        elif kind == "int":
            column = pa.int64()
        elif kind == "str_float":
            column = pa.float64()
        elif isinstance(value, bytes):
            column = pa.binary()
        elif kind in ("str", "str_int", "str_decimal", "json"):
            column = pa.string()
        else:
            raise BadInput(f"{path!r}: the column {name!r} of {encoding!r} cannot be converted.")
        fields.append((name, column))
    return pa.schema(fields)


Reader = BytesReader | ColumnsReader | ArraysReader | RowsReader


def open_reader(found: Found) -> Reader:
    """Return a reader for the records that were found."""
    if found.format is Format.NPY:
        return ArraysReader(found)
    if found.format in (Format.CSV, Format.TAR, Format.MDS):
        return RowsReader(found)
    return ColumnsReader(found) if found.format.has_columns else BytesReader(found)


@functools.lru_cache(maxsize=1)
def shared_reader(path: str, kind: Format, files: tuple[str, ...]) -> Reader:
    """Return the reader of a source, cached for all shards that a process writes."""
    return open_reader(Found(path, kind, list(files)))


def _plain_schema(schema: Any) -> Any:
    """Return a schema without dictionary encoding, which may differ between files."""
    pa = arrow()
    for number, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            schema = schema.set(number, field.with_type(field.type.value_type))
    return schema


def _plain(table: Any, schema: Any) -> Any:
    return table if table.schema.equals(schema) else table.cast(schema)


def _described(schema: Any) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
