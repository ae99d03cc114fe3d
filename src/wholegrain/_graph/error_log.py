"""The log of `on_error`: a JSON object per failed record and line."""

from __future__ import annotations

import json
import os
from typing import Any

from wholegrain._core.tolerated import FailedRecord


class ErrorLog:
    """Appends failed records to a file, each of them once.

    A run that was restored meets some failures again: those that the file has are not repeated.
    Several processes may append to one file, because each line is written by one call.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: set[str] | None = None

    def write(self, record: FailedRecord) -> None:
        """Append a record, unless the file has it."""
        if self._known is None:
            self._known = {_line(entry) for entry in read_log(self._path, missing_ok=True)}
        line = _line(record.as_dict())
        if line in self._known:
            return
        self._known.add(line)
        directory = os.path.dirname(self._path)
        if directory:
            os.makedirs(directory, exist_ok=True)
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + "\n"


def read_log(path: str, *, missing_ok: bool = False) -> list[dict[str, Any]]:
    """Return the entries of a log."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        if missing_ok:
            return []
        raise
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            if number == len(lines):  # A process was killed while it wrote this line.
                continue
            raise ValueError(
                f"Line {number} of {path} is not JSON: is this a log of `on_error`?"
            ) from None
        if not isinstance(entry, dict) or "error" not in entry:
            raise ValueError(f"Line {number} of {path} is not an entry of a log of `on_error`.")
        entries.append(entry)
    return entries
