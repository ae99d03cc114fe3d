"""Chunks with elements that failed or that are missing."""

from collections.abc import Sequence
from typing import Any

from wholegrain._core.failure import PartlyFailed


class FailedChunk:
    """A chunk with Failures in it, and the index of its first element."""

    def __init__(self, chunk: PartlyFailed, base: int) -> None:
        self.chunk, self.base = chunk, base


class SparseChunk:
    """A chunk with missing elements, and the index of its first element."""

    def __init__(self, chunk: Sequence[Any], base: int) -> None:
        self._chunk, self._base = chunk, base
        self._indices: list[int] = []  # Computed when a position is requested.

    def next_index(self, count: int) -> int:
        """Return the next index after `count` elements that are not missing."""
        if not self._indices:
            after = enumerate(self._chunk, self._base + 1)
            self._indices = [self._base, *(index for index, e in after if e is not None)]
        return self._indices[count]
