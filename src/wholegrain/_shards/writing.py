"""The writers of each format. The same records always give the same bytes."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from wholegrain._shards.files import sync
from wholegrain.sources._crc32c import checksum_of_length, payload_checksum
from wholegrain.sources._optional import require

# Reading a row reads its whole row group or batch, so small ones suit random access.
_ROWS_PER_GROUP = 1000
_BYTES_PER_GROUP = 16_000_000


def arrow() -> Any:
    """Return pyarrow, or raise an error that says what to install."""
    return require("pyarrow", extra="parquet", purpose="Converting columns")


class Writer(Protocol):
    """Writes a file, chunk by chunk."""

    def write(self, chunk: Any) -> None:
        """Append records, or the rows of a table."""
        ...

    def close(self) -> None:
        """Write the remaining records."""
        ...


class _ArrayRecordWriter:
    def __init__(self, path: Path) -> None:
        library = require(
            "array_record.python.array_record_module",
            extra="array-record",
            purpose="Writing ArrayRecord files",
        )
        # Without groups, because reading one record decompresses its whole group.
        self._writer = library.ArrayRecordWriter(str(path), "group_size:1")

    def write(self, chunk: Sequence[bytes]) -> None:
        for record in chunk:
            self._writer.write(record)

    def close(self) -> None:
        self._writer.close()


class _TFRecordWriter:
    def __init__(self, path: Path) -> None:
        self._checksum = payload_checksum()
        self._file = open(path, "wb")  # noqa: SIM115  (closed by `close`)

    def write(self, chunk: Sequence[bytes]) -> None:
        parts = []
        for record in chunk:
            length = len(record)
            head = struct.pack("<QI", length, checksum_of_length(length))
            parts += [head, record, struct.pack("<I", self._checksum(record))]
        self._file.write(b"".join(parts))

    def close(self) -> None:
        self._file.close()


class _TableWriter:
    """Writes rows in groups of a thousand, or fewer if they are large."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._schema = schema
        self._pending: list[Any] = []
        self._open(path)

    def _open(self, path: Path) -> None:
        raise NotImplementedError

    def _write_group(self, table: Any) -> None:
        raise NotImplementedError

    def write(self, chunk: Any) -> None:
        for start in range(0, chunk.num_rows, _ROWS_PER_GROUP):
            self._pending.append(chunk.slice(start, _ROWS_PER_GROUP))
            rows = sum(table.num_rows for table in self._pending)
            while rows >= _ROWS_PER_GROUP:
                self._flush(_ROWS_PER_GROUP)
                rows -= _ROWS_PER_GROUP
            if sum(table.nbytes for table in self._pending) >= _BYTES_PER_GROUP:
                self._flush(rows)

    def _flush(self, rows: int) -> None:
        pending = arrow().concat_tables(self._pending)
        rest = pending.slice(rows)
        self._pending = [rest] if rest.num_rows else []
        self._write_group(pending.slice(0, rows).combine_chunks())

    def close(self) -> None:
        rows = sum(table.num_rows for table in self._pending)
        if rows:
            self._flush(rows)


class _ParquetWriter(_TableWriter):
    def _open(self, path: Path) -> None:
        parquet = require("pyarrow.parquet", extra="parquet", purpose="Writing Parquet files")
        self._writer = parquet.ParquetWriter(str(path), self._schema, compression="zstd")

    def _write_group(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        super().close()
        self._writer.close()


class _ArrowWriter(_TableWriter):
    def _open(self, path: Path) -> None:
        ipc = require("pyarrow.ipc", extra="arrow", purpose="Writing Arrow files")
        self._file = arrow().OSFile(str(path), "wb")
        self._writer = ipc.new_file(self._file, self._schema)

    def _write_group(self, table: Any) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        super().close()
        self._writer.close()
        self._file.close()


def open_writer(path: Path, to: str, schema: Any) -> Writer:
    """Return a writer for a format: "array_record", "tfrecord", "parquet" or "arrow".

    Args:
        path: The file.
        to: The format.
        schema: The Arrow schema of the columns; None for records of bytes.
    """
    match to:
        case "array_record":
            return _ArrayRecordWriter(path)
        case "tfrecord":
            return _TFRecordWriter(path)
        case "parquet":
            return _ParquetWriter(path, schema)
        case "arrow":
            return _ArrowWriter(path, schema)
    raise ValueError(f"{to} cannot be written.")


def finish(writer: Writer, path: Path) -> None:
    """Close a file and sync it to disk."""
    writer.close()
    sync(path)
