"""Iterators that call a user's function for each element of their parent."""

from __future__ import annotations

import abc
from typing import Any, NoReturn

from wholegrain._core.failure import Failure, PartlyFailed
from wholegrain._core.names import transform_name
from wholegrain._core.types import State, T
from wholegrain._graph.chunks import after_failure
from wholegrain._graph.iterator import DatasetIterator, TransformIterator


class ElementIterator(TransformIterator[T]):
    """An iterator that returns exactly one element for each element of its parent.

    If the function fails in the middle of a chunk, it is still called for the rest of the chunk,
    so that each element is transformed only once. The results are held here and the parent is put
    back to the start of the chunk. The parent moves forward as the held results are returned.
    """

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._chunks = parent.takes_back
        self._held: PartlyFailed | None = None
        self._put_back = 0  # How many elements before the held ones were put back.

    @property
    def takes_back(self) -> bool:
        return self._chunks

    @property
    def moves_at_end(self) -> bool:
        return self.parent.moves_at_end

    @abc.abstractmethod
    def transform_chunk(self, results: list[Any], elements: list[Any]) -> None:
        """Append the new elements to `results` one by one, so that its length locates a failure.

        `results` may already contain the results of earlier elements.
        """

    def counted(self, count: int) -> None:
        """Update the iterator's own counters; `count` is negative for elements put back."""

    def take(self, count: int) -> list[T]:
        if self._held is not None:
            return self._take_held(count)
        if not self._chunks:
            return super().take(count)
        elements = self.parent.take(count)
        results: list[T] = []
        try:
            self.transform_chunk(results, elements)
            if len(results) < len(elements):
                raise StopIteration  # The function raised it, and `map` treated it as the end.
        except BaseException as error:
            self.parent.put_back(len(elements))
            self._held = after_failure(error, results, self.transform_chunk, self, elements)
            return self._take_held(count)
        self.counted(len(results))
        return results

    def next_held(self) -> T:
        """Return the next element. Call this only while results are held."""
        return self._take_held(1)[0]

    def _take_held(self, count: int) -> list[T]:
        held = self._held
        assert held is not None
        if self._put_back:  # Elements before the held ones are read again: recompute the chunk.
            self._forget_held()
            return self.take(count)
        stop = min(count, held.next_failure(0))
        results, failure = list(held[:stop]), held[0]
        del held[: stop or 1]
        if not held:
            self._held = None
        self.parent.pass_over(stop or 1)
        self.counted(stop or 1)
        if not stop:
            self.raise_explained(failure)
        return results

    def raise_explained(self, failure: Failure) -> NoReturn:
        """Raise, with a note, the function's exception for an element that was passed over."""
        error = failure.error.with_traceback(failure.traceback)
        try:
            self.explain(error, self._transform)
            raise error
        finally:
            del error, failure  # Their traceback refers to this frame: break the cycle.

    def _forget_held(self) -> None:
        self._held, self._put_back = None, 0

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)
        self.counted(-count)
        if self._held is not None:
            self._put_back += count

    def pass_over(self, count: int) -> None:
        self.parent.pass_over(count)
        self.counted(count)
        if self._held is not None:
            self._put_back -= count

    def go_to(self, state: State) -> None:
        super().go_to(state)
        self._forget_held()

    def go_to_index(self, index: int) -> None:
        """Go to an element by its index, if the parent supports that."""
        self.parent._set_next_index(index)
        self._forget_held()

    def close(self) -> None:
        self._forget_held()
        super().close()

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={transform_name(self._transform)})"
