"""What it costs to read a chunk. All decisions about chunks and threads are made from this."""

from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._read.waiting import ThreadTimes

Read = Callable[..., Sequence[Any]]
"""Reads the elements from one position up to another.

It may be called with a third argument to read a single element: a function that allocates arrays,
in which the arrays of that element should be made if possible."""

_SURE_AFTER = 8
_MOSTLY_COMPUTING = 0.85


class Cost:
    """The cost of reading a chunk.

    Args:
        count: How many elements the chunk has.
        times: What the thread's clocks measured.

    Attributes:
        count: The same.
        wall: Seconds that the read took, without those for which its thread had no CPU.
        cpu: Seconds of CPU time.
        waited: Whether most of the time was spent waiting.
        has_yielded: Whether the thread gave up its CPU at least once.
    """

    __slots__ = ("count", "cpu", "has_yielded", "waited", "wall")

    def __init__(self, count: int, times: ThreadTimes) -> None:
        self.count = count
        self.cpu = times.cpu
        self.wall = max(times.cpu, times.wall - times.queued)
        self.has_yielded = times.switches > 0
        self.waited = times.waited


def timed(read: Read, start: int, stop: int, *into: Any, exact: bool) -> tuple[Sequence[Any], Cost]:
    """Read a chunk; return it with its cost.

    With `exact`, the time does not count for which the thread was runnable but had no CPU.
    """
    before = ThreadTimes.now(queued=exact)
    chunk = read(start, stop, *into)
    return chunk, Cost(stop - start, before.until_now(queued=exact))


class Waits:
    """Detects from several reads whether they wait for a substantial part of their time."""

    def __init__(self) -> None:
        self._count = 0
        self._cpu = self._wall = 0.0

    def see(self, cost: Cost) -> bool:
        """Record the cost of a read; return whether reads are known to wait."""
        self._count += 1
        self._cpu += cost.cpu
        self._wall += cost.wall if cost.has_yielded else cost.cpu
        if self._count < _SURE_AFTER and not cost.waited:
            return False
        waits = cost.waited or self._cpu < _MOSTLY_COMPUTING * self._wall
        self._count, self._cpu, self._wall = 0, 0.0, 0.0
        return waits
