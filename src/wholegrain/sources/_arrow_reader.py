"""One Arrow file, in the file or in the stream format: its batches of rows."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from wholegrain.sources._arrow import (
    ArrowFileError,
    Form,
    chosen_types,
    has_nulls,
    is_exact,
    pa,
    plain,
)
from wholegrain.sources._arrow_columns import Columns
from wholegrain.sources._errors import explaining
from wholegrain.sources._files import LocalFile, open_file
from wholegrain.sources._mapping import MappedFile
from wholegrain.sources._optional import require

_ipc: Any = require("pyarrow.ipc", extra="arrow", purpose="Reading Arrow files")
_MAGIC = b"ARROW1"


class ArrowFileReader:
    """The batches of an Arrow file. Several threads may read at once."""

    def __init__(self, path: str, columns: Sequence[str] | None) -> None:
        self.path = path
        self._batch: Callable[[int], Any]
        self._file: MappedFile | None = None
        file = open_file(path)
        with self._explained(), contextlib.closing(file):
            if isinstance(file, LocalFile):
                self._file = MappedFile(file)
                self._memory = pa.py_buffer(self._file.memory)
            else:
                self._memory = pa.py_buffer(file.read(0, file.size))
            count = self._open()
            self.piece_rows: list[int] = [self._count_rows(piece) for piece in range(count)]
        self.types = chosen_types(path, self._schema, columns)

    def _open(self) -> int:
        """Locate the batches, and return their number."""
        if self._memory[: len(_MAGIC)].to_pybytes() == _MAGIC:
            reader = _ipc.open_file(pa.BufferReader(self._memory))
            self._batch = reader.get_batch
            count = int(reader.num_record_batches)
        else:
            # The batches of a stream can only be located sequentially.
            reader = _ipc.open_stream(pa.BufferReader(self._memory))
            batches = list(reader)
            self._batch = batches.__getitem__
            count = len(batches)
        self._schema = reader.schema
        return count

    def _explained(self) -> AbstractContextManager[None]:
        """Name the file in Arrow's errors about it."""
        return explaining(self.path, "an Arrow file", kind=ArrowFileError)

    def check(self) -> None:
        """Raise if the file was truncated, because accessing its memory would be a SIGBUS."""
        if self._file is not None:
            self._file.check()

    def _count_rows(self, piece: int) -> int:
        batch = self._batch(piece)
        batch.validate()  # a quick check: what is read is validated fully
        return int(batch.num_rows)

    def _column(self, piece: int, name: str) -> Any:
        array = self._batch(piece).column(self._schema.get_field_index(name))
        return plain(pa.chunked_array([array]))

    def has_nulls(self, piece: int, name: str) -> bool:
        """Return whether a value of a column, or an item of its lists, is missing."""
        with self._explained():
            return has_nulls(self._column(piece, name))

    def is_exact(self, piece: int, name: str) -> bool:
        """Return whether all integers of a column can be converted to float without loss."""
        with self._explained():
            return is_exact(self._column(piece, name))

    def columns(self, piece: int, forms: Mapping[str, Form]) -> Columns:
        """Return the rows of a batch, for random access."""
        self.check()
        with self._explained():
            batch = self._batch(piece)
            arrays = [batch.column(self._schema.get_field_index(name)) for name in self.types]
            is_mapped = all(self._is_mapped(array) for array in arrays)
            columns = Columns(
                list(self.types),
                [plain(pa.chunked_array([array])) for array in arrays],
                [forms.get(name, Form.AS_IS) for name in self.types],
                check=self.check,
            )
        if is_mapped:
            columns.nbytes = 0  # they are views of the mapped file
        return columns

    def _is_mapped(self, array: Any) -> bool:
        start, stop = self._memory.address, self._memory.address + self._memory.size
        return all(buffer is None or start <= buffer.address < stop for buffer in array.buffers())

    def close(self) -> None:
        """Do nothing: the file is unmapped when nothing refers to its memory."""
