"""A table of what the stages of a run measured, which other processes can read."""

from __future__ import annotations

import dataclasses
import mmap
import os
import threading

NOTHING_YET = 2**63 - 1
"""The minimum time of a stage that has produced no element yet."""

_MAX_STAGES = 1024
_ROW_BYTES = 2048
_CELLS = 10
_CONSUMER, _PREFETCH, _TOTAL, _MIN, _MAX, _COUNT, _BYTES, _NAME, _SPEC, _USED = range(_CELLS)
_TEXT_START = 8 * _CELLS
_NAME_BYTES = 600
_SPEC_BYTES = _ROW_BYTES - _TEXT_START - _NAME_BYTES


@dataclasses.dataclass
class StageTimes:
    """The measurements of one stage."""

    name: str
    consumer: int
    is_prefetch: bool
    total_ns: int
    min_ns: int
    max_ns: int
    elements: int
    nbytes: int
    spec: str


class Board:
    """One row per stage, in memory or in a file that several processes map.

    Only one process writes. Others may read at any time and see the current numbers.

    Args:
        path: The path of the file; None for memory of this process only.
    """

    def __init__(self, path: str | None = None) -> None:
        self._lock = threading.Lock()
        self._rows = 0
        size = _MAX_STAGES * _ROW_BYTES
        if path is None:
            # Pages that are never written take no memory.
            self._bytes = memoryview(mmap.mmap(-1, size))
        else:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.ftruncate(descriptor, size)
                self._bytes = memoryview(mmap.mmap(descriptor, size))
            finally:
                os.close(descriptor)
        self._cells = self._bytes.cast("q")

    def add(self, name: str, consumer: int, is_prefetch: bool) -> int:
        """Add a stage that row `consumer` reads from; return its row, -1 if the board is full."""
        with self._lock:
            if self._rows == _MAX_STAGES:
                return -1
            row = self._rows
            self._rows += 1
            at = row * _ROW_BYTES // 8
            self._cells[at + _CONSUMER] = consumer
            self._cells[at + _PREFETCH] = is_prefetch
            # A worker that died may have written to this file. Its numbers still count.
            if not self._cells[at + _USED]:
                self._cells[at + _MIN] = NOTHING_YET
            self._write(row, _NAME, 0, name, _NAME_BYTES)
            self._cells[at + _USED] = 1
            return row

    def rename(self, row: int, name: str) -> None:
        """Change the name of a stage."""
        self._write(row, _NAME, 0, name, _NAME_BYTES)

    def describe(self, row: int, spec: str) -> None:
        """Record the shapes and dtypes of a stage's elements."""
        self._write(row, _SPEC, _NAME_BYTES, spec, _SPEC_BYTES)

    def _write(self, row: int, cell: int, offset: int, text: str, limit: int) -> None:
        data = text.encode()[:limit]
        start = row * _ROW_BYTES + _TEXT_START + offset
        self._bytes[start : start + len(data)] = data
        self._cells[row * _ROW_BYTES // 8 + cell] = len(data)

    def record(self, row: int, elapsed_ns: int, elements: int, nbytes: int) -> None:
        """Add the time that a stage took for some elements."""
        at = row * _ROW_BYTES // 8
        cells = self._cells
        with self._lock:
            cells[at + _TOTAL] += elapsed_ns
            if elements:
                each = elapsed_ns // elements
                if each < cells[at + _MIN]:
                    cells[at + _MIN] = each
                if each > cells[at + _MAX]:
                    cells[at + _MAX] = each
                cells[at + _COUNT] += elements
                cells[at + _BYTES] += nbytes

    def take_back(self, row: int, elements: int) -> None:
        """Subtract elements that were put back and will be produced again."""
        with self._lock:
            self._cells[row * _ROW_BYTES // 8 + _COUNT] -= elements

    def stages(self) -> list[StageTimes]:
        """Return the current values of all rows."""
        return _read_rows(self._bytes)


def read_file(path: str) -> list[StageTimes]:
    """Return the rows of a board that another process writes."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_rows(memoryview(data))
    except (OSError, ValueError):
        return []


def _read_rows(data: memoryview) -> list[StageTimes]:
    cells = data.cast("q")
    rows = []
    for row in range(_MAX_STAGES):
        values = cells[row * _ROW_BYTES // 8 : row * _ROW_BYTES // 8 + _CELLS].tolist()
        if not values[_USED]:
            break
        text = row * _ROW_BYTES + _TEXT_START
        name = bytes(data[text : text + values[_NAME]])
        spec = bytes(data[text + _NAME_BYTES : text + _NAME_BYTES + values[_SPEC]])
        rows.append(
            StageTimes(
                name=name.decode(errors="replace"),
                consumer=values[_CONSUMER],
                is_prefetch=bool(values[_PREFETCH]),
                total_ns=values[_TOTAL],
                min_ns=values[_MIN],
                max_ns=values[_MAX],
                elements=values[_COUNT],
                nbytes=values[_BYTES],
                spec=spec.decode(errors="replace"),
            )
        )
    return rows
