"""The spans of a run: which elements they have, and which of them still have to be made."""

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from wholegrain._workers.pool import Span


class Positions(Protocol):
    """Computes states by arithmetic."""

    def left(self, state: Any, /) -> int:
        """Return how many elements follow after `state`."""

    def after(self, state: Any, count: int, /) -> Any:
        """Return the state `count` elements after `state`."""


class Plan:
    """Divides the elements after a state into spans.

    The spans cover the elements from the first one that is not complete up to `planned`, in order
    and without gaps. Each has a number, which its messages carry.

    Args:
        positions: Computes the state after a number of elements.
        state: The state from which elements are counted.

    Attributes:
        base: That state.
        spans: The spans that are not complete, or not handed out.
        planned: How many elements all spans up to the last one have.
        has_end: Whether the last span reaches the end of the data.
    """

    def __init__(self, positions: Positions, state: Any) -> None:
        self._positions = positions
        self._next_number = 1
        self.start_at(state)

    def start_at(self, state: Any) -> None:
        """Forget all spans, and count elements from `state`."""
        self.base = state
        self.spans: deque[Span] = deque()
        self.planned = 0
        self.has_end = False
        self._length = self._positions.left(state)
        self._orphans: deque[Span] = deque()  # Assigned to a worker that is gone.
        self._numbers: dict[int, Span] = {}

    @property
    def head(self) -> Span | None:
        """The span that the consumer needs next."""
        return self.spans[0] if self.spans else None

    def find(self, number: int) -> Span | None:
        """Return the span with this number, or None if it was forgotten."""
        return self._numbers.get(number)

    def state_after(self, count: int) -> Any:
        """Return the state after `count` elements."""
        # The given state is returned unchanged, because it may have additional keys.
        return self._positions.after(self.base, count) if count else self.base

    def add(self, size: int) -> Span:
        """Plan the next span."""
        size = min(size, self._length - self.planned)
        span = Span(self.planned, size)
        self.number(span)
        self.planned += size
        if self.planned >= self._length:
            span.is_last = self.has_end = True
        self.spans.append(span)
        return span

    def number(self, span: Span) -> None:
        """Give a span another number, so that messages with the old one are ignored."""
        self._numbers.pop(span.number, None)
        span.number = self._next_number
        self._next_number += 1
        self._numbers[span.number] = span

    def finish_head(self) -> None:
        """Forget the first span, which was handed out completely."""
        self._numbers.pop(self.spans.popleft().number)

    def orphan(self, spans: Iterable[Span]) -> None:
        """Record that spans have to be assigned again."""
        self._orphans = deque(sorted([*self._orphans, *spans], key=lambda span: span.start))

    def take_orphan(self) -> Span | None:
        """Return a span that has to be assigned again, the first one first."""
        return self._orphans.popleft() if self._orphans else None
