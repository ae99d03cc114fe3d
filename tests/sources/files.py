"""Small files of every format, for tests to read."""

import importlib
import os
import random
import struct
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wholegrain.sources._crc32c import crc32c_in_python


def _library(name: str) -> Any:
    return importlib.import_module(name)


def records(count: int, prefix: str = "record") -> list[bytes]:
    """Return records of different lengths; one of them is empty."""
    return [b"" if i == 3 else f"{prefix} {i} ".encode() * (i % 7 + 1) for i in range(count)]


def write_array_record(
    path: Path, elements: Iterable[bytes], options: str = "group_size:1"
) -> Path:
    array_record_module = _library("array_record.python.array_record_module")
    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for element in elements:
        writer.write(element)
    writer.close()
    return path


def masked_crc(data: bytes) -> bytes:
    crc = crc32c_in_python(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord_bytes(elements: Iterable[bytes]) -> bytes:
    parts = []
    for element in elements:
        length = struct.pack("<Q", len(element))
        parts += [length, masked_crc(length), element, masked_crc(element)]
    return b"".join(parts)


def write_tfrecord(path: Path, elements: Iterable[bytes]) -> Path:
    path.write_bytes(tfrecord_bytes(elements))
    return path


def write_bagz(path: Path, elements: Iterable[bytes]) -> Path:
    with _library("bagz").Writer(str(path)) as writer:
        for element in elements:
            writer.write(element)
    return path


def table(columns: Mapping[str, Sequence[Any]], **types: Any) -> Any:
    pa = _library("pyarrow")
    return pa.table({name: pa.array(v, types.get(name)) for name, v in columns.items()})


def write_parquet(path: Path, data: Any, row_group_size: int = 4, **kwargs: Any) -> Path:
    _library("pyarrow.parquet").write_table(data, path, row_group_size=row_group_size, **kwargs)
    return path


def write_arrow(path: Path, data: Any, batch_rows: int = 4, *, stream: bool = False) -> Path:
    pa = _library("pyarrow")
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, data.schema) as writer:
        writer.write_table(data, max_chunksize=batch_rows)
    return path


def damaged(content: bytes, rng: random.Random, size: int | None = None) -> bytes:
    """Return a copy in which some of the first `size` bytes are different."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(content) if size is None else size)] = rng.randrange(256)
    return bytes(changed)


def survives(function: Callable[[], None]) -> bool:
    """Return whether a child process gets through `function`, instead of being killed by it."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
