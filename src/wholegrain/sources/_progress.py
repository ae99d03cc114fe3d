"""Log lines about what takes more than a second."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from wholegrain._core.log import logger

S = TypeVar("S")
T = TypeVar("T")

_LONG_S = 1.0
_REPORT_EVERY_S = 5.0


class Pace:
    """Says when to report: after a second, and then every few seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _LONG_S

    def is_due(self) -> bool:
        """Return whether it is time to report."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _REPORT_EVERY_S
        return True


class Progress:
    """Reports how far the indexing of a file is."""

    def __init__(self, path: str, size: int, verb: str = "Indexing") -> None:
        self._text = f"{verb} {path!r}, which is done once"
        self._size = max(size, 1)
        self._pace = Pace()

    def at(self, position: int) -> None:
        """Report a position in the file."""
        if self._pace.is_due():
            share = min(position, self._size) / self._size
            logger().warning("%s: %.0f %% of %.1f MB.", self._text, 100 * share, self._size / 1e6)


def open_all(function: Callable[[S], T], files: Sequence[S], *, threads: int = 16) -> list[T]:
    """Return what a function returns for each of some files, opened in several threads."""
    pace = Pace()
    found: list[T] = []
    with ThreadPoolExecutor(min(threads, len(files))) as pool:
        for result in pool.map(function, files):
            found.append(result)
            if pace.is_due():
                logger().warning("Opening files: %d of %d.", len(found), len(files))
    return found
