"""Keeps the elements for which a function is true."""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core.failure import PartlyFailed
from wholegrain._core.origins import TracedTest
from wholegrain._core.types import T
from wholegrain._graph import fusion
from wholegrain._graph.chunks import after_failure
from wholegrain._graph.drop_watch import DropWatch
from wholegrain._graph.element_iterator import FunctionIterator, FunctionIterNode
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import FunctionTransform, method_or_function
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec


class FilterMapDataset(FunctionTransform[T]):
    """The elements for which a function is true, None at the other indices."""

    keeps_size = True
    kind = fusion.FILTER

    checkpoint = CheckpointSpec(free=("transform",), position="regrouped")

    def __init__(self, parent: MapDataset[Any], transform: Any) -> None:
        function = method_or_function(transform, "Filter", "filter")
        super().__init__(parent, transform, function)

    @property
    def sparse(self) -> bool:
        return True

    def apply_to(self, element: Any, index: int) -> T | None:
        return element if self._function(element) else None

    @property
    def _element_spec(self) -> Any:
        return self.parent._element_spec

    def _about(self, name: str) -> str:
        return f"{name} leaves gaps: `ds[i]` may be None, and iteration skips them."


class FilterIterDataset(FunctionIterNode[T]):
    """The elements for which a function is true, in order."""

    takes = ("Filter", "filter")
    keeps_size = True
    checkpoint = CheckpointSpec(free=("transform",), position="regrouped")

    def open(self) -> DatasetIterator[T]:
        return FilterDatasetIterator(self._parent.__iter__(), self._transform)

    def _traced_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return TracedTest(function)

    @property
    def _element_spec(self) -> Any:
        return self._parent._element_spec


class FilterDatasetIterator(FunctionIterator[T]):
    """A position in a FilterIterDataset: after the last element that the function was called for.

    The function is called for all elements of a chunk, and then the parent is put back. When a kept
    element is returned, the parent moves forward to it.
    """

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._keeps = FilterIterDataset.function_of(transform)
        self._watch = DropWatch(self, self.context.options)
        # A DropWatch that may raise has to do so at the exact element, so elements come singly.
        self._chunks = parent.takes_back and not self._watch.raises
        # Elements that the function was already called for, and its results.
        self._elements: Sequence[Any] = ()
        self._verdicts: Sequence[Any] = ()
        # Of the last `take`: 0, then for each kept element the number of elements up to and
        # including it.
        self._ends = [0]
        self._back = 0  # How many elements of that `take` were put back.

    @property
    def moves_at_end(self) -> bool:
        return True  # The parent moves over dropped elements.

    def __next__(self) -> T:
        if self._verdicts:
            for held in self.take(1):
                return held
            raise StopIteration
        keeps, parent, watch = self._keeps, self.parent, self._watch
        while True:
            element = next(parent)
            try:
                kept = bool(keeps(element))
            except Exception as error:
                self.explain(error, self._transform)
                raise
            watch.see(1, 0 if kept else 1)
            if kept:
                return element  # type: ignore[no-any-return]

    def take(self, count: int) -> list[T]:
        if not self._chunks:
            return super().take(count)
        if self._back:
            self.forget_read()  # The function is called again for elements that were put back.
        while True:
            if not self._verdicts and not self._look_at(min(count, self._watch.left_in_window)):
                return []
            verdicts, stop = self._verdicts, len(self._verdicts)
            if type(verdicts) is PartlyFailed:
                stop = verdicts.next_failure(0)
            kept = list(itertools.compress(self._elements[:stop], verdicts))
            if kept:
                del kept[count:]
                ends = itertools.compress(range(1, stop + 1), verdicts)
                self._ends = [0, *itertools.islice(ends, len(kept))]
                self._move_on(self._ends[-1], len(kept))
                return kept
            if stop < len(verdicts):
                failure = verdicts[stop]
                self._move_on(stop + 1, 1)
                self.raise_explained(failure)
            self._move_on(stop, 0)

    def _look_at(self, count: int) -> bool:
        """Call the function for some elements of the parent; return whether there were any."""
        parent = self.parent  # With the same clock, if clocks are switched while it reads.
        elements = self._inputs.take(parent, count)
        verdicts: list[Any] = []
        try:
            self._judge(verdicts, elements)
            if len(verdicts) < len(elements):
                raise StopIteration  # The function raised it, and `map` treated it as the end.
        except BaseException as error:
            verdicts = after_failure(error, verdicts, self._judge, self, elements)
        parent.put_back(len(elements))
        self._elements, self._verdicts = elements, verdicts
        return bool(elements)

    def _move_on(self, count: int, kept: int) -> None:
        """Move the parent forward over elements that have a verdict."""
        self.parent.pass_over(count)
        self._elements, self._verdicts = self._elements[count:], self._verdicts[count:]
        self._watch.see(count, count - kept)

    def put_back(self, count: int) -> None:
        before, ends = self._back, self._ends
        self._back = back = before + count
        self.parent.put_back(ends[-1 - before] - ends[-1 - back])

    def pass_over(self, count: int) -> None:
        before, ends = self._back, self._ends
        self._back = back = before - count
        self.parent.pass_over(ends[-1 - back] - ends[-1 - before])

    def forget_read(self) -> None:
        self._elements = self._verdicts = ()
        self._ends, self._back = [0], 0

    def _judge(self, verdicts: list[Any], elements: list[Any]) -> None:
        # `truth` may fail too: that of an array does.
        verdicts.extend(map(operator.truth, map(self._keeps, elements)))
