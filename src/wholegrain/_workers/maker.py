"""Makes the elements of a worker: one by one, or numbers and strings in chunks."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._workers.messages import COUNTER
from wholegrain._workers.outbox import WireState
from wholegrain._workers.pickling import dumps

_LARGEST_CHUNK = 256
_CHUNK_S = 1e-3
_GROWTH = 4
_IMMUTABLE = frozenset({int, float, bool, type(None), complex, str, bytes})


class Maker:
    """Advances the iterator of a worker, and determines the state after each element.

    If the iterator has a true `takes_chunks`, numbers and strings are made in chunks of up to a
    millisecond. Other elements are made one by one: an element that the pipeline changes in place
    has to be sent before it changes.

    Args:
        iterator: The iterator; `WorkerIterator` describes its optional methods.
        empty: Passed to `next_into`, if the iterator has that.

    Attributes:
        iterator: The same.
        make: Returns the next element.
        takes_chunks: Whether to call `take` instead of `make`.
        get_report: The iterator's method of that name, or None.
    """

    def __init__(self, iterator: Any, empty: Callable[..., Any]) -> None:
        self.iterator = iterator
        self.get_report: Callable[[], Any] | None = getattr(iterator, "get_report", None)
        self.make: Callable[[], Any] = functools.partial(next, iterator)
        if has_next_into := hasattr(iterator, "next_into"):
            self.make = functools.partial(iterator.next_into, empty)
        self.takes_chunks = not has_next_into and getattr(iterator, "takes_chunks", False)
        self._size = 1  # How many elements the next chunk should have.
        self._wire_state: WireState = b""  # After the last element.

    def go_to(self, state: Any) -> None:
        """Move the iterator."""
        self._wire_state = b""
        self.iterator.set_state(state)

    def take(self, most: int) -> list[Any]:
        """Return up to `most` of the next elements.

        Raises:
            StopIteration: At the end.
        """
        began = time.perf_counter()
        elements: list[Any] = self.iterator.take(min(self._size, most))
        if not elements:
            raise StopIteration
        self._adapt(elements, time.perf_counter() - began)
        return elements

    def _adapt(self, elements: list[Any], seconds: float) -> None:
        if type(elements[-1]) not in _IMMUTABLE:
            self.takes_chunks = False
        elif seconds > _CHUNK_S:
            self._size = max(1, int(len(elements) * _CHUNK_S / seconds))
        elif seconds < _CHUNK_S / _GROWTH:
            self._size = min(_GROWTH * self._size, _LARGEST_CHUNK)

    def wire_state(self) -> WireState:
        """Return the state after the element that was made last."""
        state = self.iterator.get_state()
        if type(state) is dict and len(state) == 1:
            number = state.get(COUNTER)
            if type(number) is int:
                self._wire_state = number
                return number
        wire_state = self._wire_state = dumps(state)
        return wire_state

    def wire_states(self, count: int) -> Sequence[WireState]:
        """Return the states after each of the `count` elements that were taken last."""
        before, after = self._wire_state, self.wire_state()
        if count == 1:
            return (after,)
        # An element moves a counter by at least one. So if `count` elements moved it by `count`,
        # each of them moved it by one.
        if type(before) is int and type(after) is int and after - before == count:
            return range(before + 1, after + 1)
        self.iterator.put_back(count)
        wire_states = []
        for _ in range(count):
            self.iterator.pass_over(1)
            wire_states.append(self.wire_state())
        return wire_states
