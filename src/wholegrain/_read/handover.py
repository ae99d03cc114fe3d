"""Decides from the cost of reads whether the consumer or threads should do them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._read.chunk_size import CHUNK_SECONDS
from wholegrain._read.cost import Cost, Waits

_SURE_SECONDS = 50e-3
"""How much CPU time slow reads have to take in a row before threads take over."""

_SLOW_FIRST_SECONDS = 2e-3
"""If the first read takes this much CPU time, a thread continues at once. The consumer may be busy
for a while, for example compiling its first training step."""

_LIKE_THE_FIRST = 0.25
"""If later reads take this share of the first one's time, the first was not slow because it opened
files."""

_TRY_AGAIN_SECONDS, _TRY_AGAIN_MOST_SECONDS = 1.0, 10.0
"""How long to wait before threads are tried again after they were no faster than the consumer."""

_CACHED_BYTES = 1 << 15
"""If all CPUs are busy, the consumer reads larger elements itself, while they are in its cache."""


class Handover:
    """Judges the consumer's reads until threads take over, and again once they have ended.

    The first reads may be slow because they open files. So threads take over if reads stay slow.
    They also take over after a slow first read, but then later reads have to confirm its cost.

    Args:
        largest_chunk: The largest number of elements that a thread reads at a time.
        size_of: Estimates the size of an element in bytes.
        is_crowded: Whether other processes keep all CPUs busy.

    Attributes:
        first: The cost of a slow first read, until it is confirmed.
    """

    def __init__(
        self, largest_chunk: int, size_of: Callable[[Any], int], *, is_crowded: bool
    ) -> None:
        self.first: Cost | None = None
        self._largest = largest_chunk
        self._size_of = size_of
        self._is_crowded = is_crowded
        self._waits = Waits()
        self._slow_reads = 0
        self._slow_cpu = 0.0
        self._slow_start, self._slow_since = 0, 0.0
        self._try_again_after, self._try_again_at = _TRY_AGAIN_SECONDS, 0.0

    @property
    def is_likely(self) -> bool:
        """Whether the last read was slow."""
        return self._slow_reads > 0

    def consider(
        self, cost: Cost, chunk: Sequence[Any], position: int, *, is_first: bool
    ) -> float | None:
        """Return None if the consumer should go on, or its elements per second if threads should.

        The rate is 0 if it is not known.

        Args:
            cost: The cost of the consumer's last read.
            chunk: What it read.
            position: The position after it.
            is_first: Whether it was the first read of all.
        """
        now = time.perf_counter()
        if not cost.waited and (not self._computes(cost) or now < self._try_again_at):
            self._slow_reads = 0
            return None
        self._slow_reads += 1
        if self._slow_reads == 1:
            self._slow_start, self._slow_since, self._slow_cpu = position, now, cost.cpu
            return self._consider_first(cost) if is_first else None
        self._slow_cpu += cost.cpu
        if not cost.waited and self._slow_cpu < _SURE_SECONDS:
            return None
        self._slow_reads = 0
        small = not len(chunk) or self._size_of(chunk[0]) < _CACHED_BYTES
        if self._is_crowded and not small and not self._waits.see(cost):
            return None
        return 0.0 if cost.waited else (position - self._slow_start) / (now - self._slow_since)

    def _computes(self, cost: Cost) -> bool:
        """Return whether reads compute for so long that a thread may be worth its hand-over."""
        whole_chunk = cost.cpu / cost.count * self._largest
        return whole_chunk > 4 * CHUNK_SECONDS and cost.cpu > 0.5 * CHUNK_SECONDS

    def _consider_first(self, cost: Cost) -> float | None:
        if not cost.waited and (cost.cpu <= _SLOW_FIRST_SECONDS or self._is_crowded):
            return None
        self._slow_reads = 0
        self.first = cost
        return 0.0

    def confirm(self, cost: Cost) -> bool | None:
        """Return whether reads after a slow first one are slow too; None if not known yet."""
        first = self.first
        assert first is not None
        sure: bool | None
        if first.waited:
            sure = cost.waited and cost.wall > _LIKE_THE_FIRST * first.wall
        elif cost.cpu < _LIKE_THE_FIRST * first.cpu:
            sure = False
        else:
            self._slow_cpu += cost.cpu
            sure = True if self._slow_cpu >= _SURE_SECONDS else None
        if sure is not None:
            self.first = None
        return sure

    def note_no_gain(self) -> None:
        """Record that threads were no faster than the consumer. They are tried again later."""
        self._try_again_at = time.perf_counter() + self._try_again_after
        self._try_again_after = min(2 * self._try_again_after, _TRY_AGAIN_MOST_SECONDS)
