"""The size of the chunks that the consumer reads itself.

Larger chunks are tried, and kept if they reduce the cost per element.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._read.reader_count import Cost

CHUNK_SECONDS = 1e-3
"""The time that reading a chunk should take."""

_LARGER_CHUNK_SECONDS, _LARGER_CHUNK_BYTES = 25e-3, 1 << 20
"""Bounds of chunks that are larger because that makes elements cheaper."""

_CHUNK_BYTES = 32 << 20
_GROWTH = 8

_FACTOR, _MOST = 4, 16
_CHEAPER = 0.9
_LONGEST_PAUSE = 64


def computed_in(cost: Cost, seconds: float) -> int:
    """Return how many elements with this CPU cost can be computed in `seconds`."""
    return int(seconds * cost.count / max(cost.cpu, 1e-9))


class LargerChunks:
    """Finds the factor by which chunks should be larger than usual.

    Some stages have a fixed cost per chunk, for example a mixture for each of its components.

    Attributes:
        factor: 1, or the factor that has made elements cheaper.
    """

    def __init__(self) -> None:
        self.factor = 1
        self._before: float | None = None  # Seconds per element before the running try, if any.
        self._pause = self._left = 1  # How many measurements to wait before the next try.

    def learn(self, seconds: float, settled: bool) -> None:
        """Record the seconds per element, and whether the chunk size has settled."""
        if self._before is not None:
            if seconds < _CHEAPER * self._before:
                self._pause = 1
            else:
                self.factor //= _FACTOR
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._before, self._left = None, self._pause
        elif settled and self.factor < _MOST:
            self._left -= 1
            if self._left <= 0:
                self._before = seconds
                self.factor *= _FACTOR


class ChunkSizes:
    """Chooses the size of the next chunk by the time and memory that the last one took.

    Args:
        largest: The largest number of elements, unless larger chunks are cheaper.
        hint: The number of elements that a chunk should have at least, even if it takes longer.
        size_of: Estimates the size of an element in bytes.
        buffer_bytes: How many bytes a chunk may have.
    """

    def __init__(
        self, largest: int, hint: int, size_of: Callable[[Any], int], buffer_bytes: int
    ) -> None:
        self._largest = largest
        self._hint = hint
        self._size_of = size_of
        self._most_bytes = min(_CHUNK_BYTES, buffer_bytes)
        self._larger = LargerChunks()

    def after(self, size: int, cost: Cost, chunk: Sequence[Any], settled: bool) -> int:
        """Return the size of the chunk to read after `chunk`.

        Args:
            size: The intended size of `chunk`.
            cost: The cost of reading it.
            chunk: Its elements.
            settled: Whether the cost per read is stable.
        """
        # On a busy machine, wall time includes the time that other processes ran.
        took = cost.wall if cost.waited else cost.cpu
        self._larger.learn(took / cost.count, settled)
        factor = self._larger.factor
        seconds = min(factor * CHUNK_SECONDS, _LARGER_CHUNK_SECONDS)
        fitting = int(cost.count * seconds / max(took, 1e-9))
        hinted = min(self._hint, int(cost.count * _LARGER_CHUNK_SECONDS / max(took, 1e-9)))
        most = min(cost.count * _GROWTH, max(factor * self._largest, self._hint))
        chosen = max(1, min(max(fitting, hinted), most))
        if chosen > size and len(chunk):
            nbytes = self._most_bytes if factor == 1 else min(self._most_bytes, _LARGER_CHUNK_BYTES)
            chosen = max(1, min(chosen, nbytes // max(1, self._size_of(chunk[0]))))
        return chosen
