"""Reads several spans of positions ahead, as if they were one."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

from wholegrain._core.failure import joined
from wholegrain._core.types import T
from wholegrain._read.read_ahead import Read, ReadAhead

_KEPT = 64


class _Span(NamedTuple):
    """A contiguous range of positions, and how many positions earlier spans have."""

    before: int
    start: int
    stop: int

    @property
    def end(self) -> int:
        return self.before + self.stop - self.start


class ReadSpans(Generic[T]):
    """Reads spans in the order in which they were announced, each up to its end.

    The threads and the measured cost of reading are kept from one span to the next.

    Args:
        read: Reads the elements from one position up to another.
        new_reader: Makes a `ReadAhead` from a read function, a start and a stop.
        start: The first position of the first span.
        stop: The position after its last.
    """

    # Every chunk is measured, because a span has few of them.
    unwatched, unseen_elements = False, 0

    def __init__(
        self,
        read: Read,
        new_reader: Callable[[Read, int, int], ReadAhead[T]],
        start: int,
        stop: int,
    ) -> None:
        self._read = read
        # Read by other threads, so the tuple is replaced and never changed.
        self._spans: tuple[_Span, ...] = ()
        self._coming: deque[_Span] = deque()
        self._end = 0
        self._taken = 0
        # Elements that were read beyond the end of the current span.
        self._rest: Sequence[T] = ()
        self._rest_end = 0
        self._append(start, stop)
        self._current = self._coming.popleft()
        self._reader = new_reader(self._read_many, 0, self._end)

    def _append(self, start: int, stop: int) -> None:
        span = _Span(self._end, start, stop)
        kept = self._spans
        if len(kept) > _KEPT:
            kept = tuple([one for one in kept if one.end > self._taken])
        self._spans = (*kept, span)
        self._coming.append(span)
        self._end = span.end

    def announce(self, start: int, stop: int) -> None:
        """Append a span to be read after those announced before."""
        self._append(start, stop)
        self._reader.extend(self._end)

    def goes_on_at(self, start: int, stop: int) -> bool:
        """Move to the next announced span, if it is this one and the current one is finished.

        Return whether that is so.
        """
        coming = self._coming[0] if self._coming else None
        if coming is None or self._taken != self._current.end or coming[1:] != (start, stop):
            return False
        self._current = self._coming.popleft()
        return True

    def next_chunk(self) -> tuple[int, Sequence[T]]:
        """Return the position after the next chunk of the current span, and the chunk."""
        if self._taken == self._rest_end:
            self._rest_end, self._rest = self._reader.next_chunk()
        end = min(self._rest_end, self._current.end)
        chunk = self._rest
        if end < self._rest_end:
            count = end - self._taken
            chunk, self._rest = chunk[:count], chunk[count:]
        self._taken = end
        return self._current.start + end - self._current.before, chunk

    @property
    def empty(self) -> Any:
        """See `ReadAhead`."""
        return self._reader.empty

    @empty.setter
    def empty(self, empty: Any) -> None:
        self._reader.empty = empty

    @property
    def reads_here(self) -> bool:
        """Whether the consumer currently reads by itself."""
        return self._reader.reads_here

    def start(self) -> None:
        """Begin to read in the background."""
        self._reader.start()

    def close(self) -> None:
        """Release the threads."""
        self._reader.close()

    @property
    def ready_count(self) -> int:
        """How many of the next elements have been read."""
        return self._rest_end - self._taken + self._reader.ready_count

    def _read_many(self, first: int, last: int, *into: Any) -> Sequence[Any]:
        """Read a range of elements that may belong to several spans."""
        parts = []
        for span in self._spans:
            if span.before < last and span.end > first:
                offset = span.start - span.before
                start = max(first, span.before) + offset
                parts.append(self._read(start, min(last, span.end) + offset, *into))
        return joined(parts)
