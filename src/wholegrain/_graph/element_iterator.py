"""Iterators that call a user's function for each element of their parent."""

from __future__ import annotations

import abc
from typing import Any

from wholegrain._core.names import transform_name
from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator, TransformIterator


class ElementIterator(TransformIterator[T]):
    """One element in, one element out."""

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._chunks = parent.takes_back

    @property
    def takes_back(self) -> bool:
        return self._chunks

    @property
    def moves_at_end(self) -> bool:
        return self.parent.moves_at_end

    @abc.abstractmethod
    def transform_chunk(self, elements: list[Any], results: list[Any]) -> None:
        """Append the new elements to `results`, one by one, so that a failure shows where."""

    def counted(self, count: int) -> None:
        """Count elements of a chunk; negative for those that are put back."""

    def take(self, count: int) -> list[T]:
        if not self._chunks:
            return super().take(count)
        elements = self.parent.take(count)
        results: list[T] = []
        try:
            self.transform_chunk(elements, results)
        except Exception as error:
            done = len(results)
            # What came before is good; the one that failed fails again when its turn comes.
            self.parent.put_back(len(elements) - (done or 1))
            self.counted(done or 1)
            if not done:
                self.explain(error, self._transform)
                raise
            return results
        self.counted(len(results))
        return results

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)
        self.counted(-count)

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={transform_name(self._transform)})"
