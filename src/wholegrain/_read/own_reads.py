"""The reads that the consumer does itself: how large they are, and which of them are measured."""

import time
from collections.abc import Sequence
from typing import Any

from wholegrain._read.chunk_size import ChunkSizes
from wholegrain._read.cost import Cost, Read

_FIRST_READS, _UNWATCHED_SECONDS = 8, 50e-3
"""After the first reads, while the cost per read is stable, measure only one read per 50 ms."""

_FIRST_UNWATCHED_SECONDS = 3e-3
"""The same at first, and then longer each time: reports of short runs need a measurement, too."""

_STACKED_BYTES = 1 << 17
"""An element of this size is worth a read of its own, if that saves copying it."""

_QUICK_READ_SECONDS = 5e-3
"""Reads longer than this are always measured."""


class OwnReads:
    """Chooses the size of the consumer's next read, and whether to measure it.

    Args:
        read: Reads the elements from one position up to another.
        read_unwatched: Reads without measurements.
        sizes: Chooses the size of chunks.

    Attributes:
        read: The same.
        read_unwatched: The same.
        size: How many elements the next chunk should have.
        has_large: Whether elements are large, and reading them one by one costs nothing.
        count: How many reads were measured.
        watch_s: How long reads may go unmeasured.
    """

    def __init__(self, read: Read, read_unwatched: Read, sizes: ChunkSizes) -> None:
        self.read = read
        self.read_unwatched = read_unwatched
        self.size = 1
        self.has_large = False
        self.count = 0
        self.watch_s = _UNWATCHED_SECONDS
        self._sizes = sizes
        self._watch_at, self._longest = 0.0, 0.0  # When to measure the next read, or a slow one.
        self._next_watch_s = _FIRST_UNWATCHED_SECONDS

    def take_turns(self, readers: int) -> None:
        """Measure less often, because each of several readers is measured; read smaller chunks."""
        self.watch_s *= readers
        self._sizes.take_turns(readers)

    def note(self, cost: Cost, chunk: Sequence[Any], *, slow: bool) -> None:
        """Adapt the size to a measured read.

        Args:
            cost: The cost of the read.
            chunk: What was read.
            slow: Whether the reads before it were slow, so that their cost is not stable.
        """
        self.size = self._sizes.after(self.size, cost, chunk, not slow and self._has_begun)
        self.has_large = self._sizes.is_large(chunk, _STACKED_BYTES)
        self.count += 1

    @property
    def _has_begun(self) -> bool:
        return self.count > _FIRST_READS

    def may_go_unwatched(self, cost: Cost, size: int) -> bool:
        """Return whether the reads after a measured one of `size` elements need no measurement."""
        is_same = 2 * abs(self.size - size) <= size
        if not is_same or not self._has_begun or cost.wall >= _QUICK_READ_SECONDS:
            return False
        self._longest = 2 * cost.wall
        self._watch_at = time.perf_counter() + min(self.watch_s, self._next_watch_s)
        self._next_watch_s *= 4
        return True

    def stays_unwatched(self, began: float, ended: float) -> bool:
        """Return whether the read after one with these times needs no measurement either."""
        return ended - began <= self._longest and ended < self._watch_at
