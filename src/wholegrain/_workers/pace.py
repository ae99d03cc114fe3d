"""How large the spans of a pool of workers are, and how far ahead of the consumer they reach."""

import time

_SPAN_S = 10e-3
"""The time that a worker should take for a span."""

_SMALLEST_DEPTH_S = 50e-3
_LARGEST_DEPTH_S = 1.0
"""Bounds of how much time the spans in a worker's queue should take."""

_ROOM_BYTES = 4 << 20
_ROOM_ELEMENTS = 8192
"""How many bytes and elements may be ready for each worker if elements are small."""

_LONGEST_SPAN = 4096
_GROWTH = 4


class Pace:
    """Measures the cost of elements and the consumer's habits, and derives sizes from them.

    Args:
        buffer_size: How many finished elements should be ready for each worker.

    Attributes:
        seconds: The time that a worker takes for an element; None before the first span.
        nbytes: The size of an element.
    """

    def __init__(self, buffer_size: int) -> None:
        self.seconds: float | None = None
        self.nbytes = 1.0
        self._buffer_size = buffer_size
        self._away_s = 0.0  # The time between two calls of the consumer.
        self._left_at: float | None = None
        self._size = 1

    def note_span(self, seconds: float) -> None:
        """Record how long each element of a span took."""
        known = self.seconds
        self.seconds = seconds if known is None else known + 0.3 * (seconds - known)

    def note_bytes(self, nbytes: float) -> None:
        """Record the size of an element."""
        self.nbytes = max(nbytes, self.nbytes + 0.2 * (nbytes - self.nbytes))

    def note_call(self, now: float) -> None:
        """Record that the consumer asks for elements."""
        if self._left_at is not None:
            self._away_s = max(now - self._left_at, 0.9 * self._away_s)

    def note_return(self) -> None:
        """Record that the consumer gets elements."""
        self._left_at = time.perf_counter()

    def is_enough(self, pending: int) -> bool:
        """Return whether a queue of `pending` elements is busy until the consumer asks again."""
        depth_s = min(max(_SMALLEST_DEPTH_S, 2 * self._away_s), _LARGEST_DEPTH_S)
        return self.seconds is None or pending * self.seconds >= depth_s

    def room(self, workers: int) -> int:
        """Return how many elements may be ready or being made."""
        small = min(_ROOM_ELEMENTS, int(_ROOM_BYTES / max(1.0, self.nbytes)))
        return max(2 * self._buffer_size + 1, small) * workers

    def span_size(self, most: int) -> int:
        """Return how many elements the next span should have, at most `most`."""
        if self.seconds is not None:
            fitting = max(1, int(_SPAN_S / max(self.seconds, 1e-9)))
            self._size = max(1, min(fitting, self._size * _GROWTH, _LONGEST_SPAN))
        return max(1, min(self._size, most))
