"""The size of chunks: of those that the consumer reads itself, and of those that threads read."""

from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._read.cost import Cost

CHUNK_SECONDS = 1e-3
"""The time that reading a chunk should take."""

_SHORTEST_CHUNK_SECONDS = 2e-4
"""The same for readers that take turns."""

_LARGER_CHUNK_SECONDS, _LARGER_CHUNK_BYTES = 25e-3, 1 << 20
"""Bounds of chunks that are larger because that makes elements cheaper."""

_CHUNK_BYTES = 32 << 20
_GROWTH = 8

_THREAD_CHUNK_SECONDS = 5e-3
"""The time that a chunk should take that a thread computes. The hand-over needs larger chunks."""

_WAITING_CHUNK_SECONDS = 25e-3
"""The time that a chunk should take that a thread waits for, while other threads continue."""

_CHEAPER_TO_GROW = 0.7
"""If a chunk costs less than this share of the cheapest one per element, chunks grow."""

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
    """Chooses the size of the consumer's next chunk by the time and memory of the last one.

    Larger chunks are tried, and kept if they reduce the cost per element.

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
        self._seconds = CHUNK_SECONDS

    def take_turns(self, readers: int) -> None:
        """Read smaller chunks, because several readers take turns.

        They need their next chunks at about the same time, and nothing is handed out meanwhile.
        """
        self._seconds = max(CHUNK_SECONDS / readers, _SHORTEST_CHUNK_SECONDS)

    def is_large(self, chunk: Sequence[Any], nbytes: int) -> bool:
        """Return whether elements have at least `nbytes`, and need not be read together."""
        return self._hint <= 1 and len(chunk) > 0 and self._size_of(chunk[0]) >= nbytes

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
        seconds = min(factor * self._seconds, _LARGER_CHUNK_SECONDS)
        fitting = int(cost.count * seconds / max(took, 1e-9))
        hinted = min(self._hint, int(cost.count * _LARGER_CHUNK_SECONDS / max(took, 1e-9)))
        most = min(cost.count * _GROWTH, max(factor * self._largest, self._hint))
        chosen = max(1, min(max(fitting, hinted), most))
        if chosen > size and len(chunk):
            nbytes = self._most_bytes if factor == 1 else min(self._most_bytes, _LARGER_CHUNK_BYTES)
            some = next((element for element in chunk if element is not None), None)
            chosen = max(1, min(chosen, nbytes // max(1, self._size_of(some))))
        return chosen


class ThreadChunks:
    """Chooses how many elements threads read at a time, and how many they read ahead.

    Args:
        largest: The largest number of elements in a chunk.
        buffer_size: How many elements may be ready or being read.
        size_of: Estimates the size of an element in bytes.
        buffer_bytes: How much memory these elements may use.

    Attributes:
        largest: The largest number of elements in a chunk.
        size: How many elements the next chunk should have.
        most_ahead: How many elements may be ready or being read; reduced if they are large.
    """

    def __init__(
        self, largest: int, buffer_size: int, size_of: Callable[[Any], int], buffer_bytes: int
    ) -> None:
        self.largest = min(largest, buffer_size)
        self.size = 1
        self.most_ahead = self._buffer_size = buffer_size
        self._size_of = size_of
        self._buffer_bytes = buffer_bytes
        self._cheapest = float("inf")  # Seconds per element of the cheapest chunk so far.

    def set_buffer_size(self, largest: int, buffer_size: int) -> None:
        """Change how many elements may be ready or being read."""
        self.largest = min(largest, buffer_size)
        self.size = min(self.size, self.largest)
        self.most_ahead = self._buffer_size = buffer_size

    def adapt(self, cost: Cost, chunk: Sequence[Any], threads: int, *, waiting: bool) -> None:
        """Adapt both numbers to the cost of a chunk.

        Args:
            cost: The cost.
            chunk: The elements.
            threads: How many threads there are.
            waiting: Whether reads wait.
        """
        if len(chunk):
            # Measure several elements, because some may be missing.
            nbytes = max([self._size_of(chunk[index]) for index in (0, len(chunk) // 2, -1)])
            fewest = 2 * threads if waiting else 2
            fitting = max(fewest, self._buffer_bytes // max(1, nbytes))
            self.most_ahead = min(self._buffer_size, fitting)
        self.size = self._fitting(cost, threads, waiting)

    def _fitting(self, cost: Cost, threads: int, waiting: bool) -> int:
        fair = max(1, 2 * self.most_ahead // (3 * max(1, threads)))
        if waiting:
            fitting = int(_WAITING_CHUNK_SECONDS * cost.count / max(cost.wall, 1e-9))
        else:
            fitting = computed_in(cost, _THREAD_CHUNK_SECONDS)
        per_element = cost.wall / cost.count
        if per_element < _CHEAPER_TO_GROW * self._cheapest:
            fitting = max(fitting, 2 * cost.count)
        self._cheapest = min(self._cheapest, per_element)
        return max(1, min(fitting, fair, self.largest))

    def is_quick(self, cost: Cost) -> bool:
        """Return whether a whole chunk would be too quick for a hand-over."""
        return cost.cpu / cost.count * self.largest < CHUNK_SECONDS
