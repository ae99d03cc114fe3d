"""The elements for which a function is true."""

from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core.failure import PartlyFailed
from wholegrain._core.names import transform_name
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import T
from wholegrain._graph import fusion
from wholegrain._graph.chunks import after_failure
from wholegrain._graph.drop_watch import DropWatch
from wholegrain._graph.element_iterator import ElementIterator
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import FunctionTransform, OneParentIterNode, method_or_function
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.stage import Stage


class FilterMapDataset(FunctionTransform[T]):
    """The elements for which a function is true, None at the other indices."""

    kind = fusion.FILTER

    _stage = Stage(free=("transform",), position="regrouped")

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


class FilterIterDataset(OneParentIterNode[T]):
    """The elements for which a function is true, in order."""

    _stage = Stage(free=("transform",), position="regrouped")

    def __init__(self, parent: Any, transform: Any) -> None:
        super().__init__(parent)
        # Refused here, not when it is read.
        method_or_function(transform, "Filter", "filter")
        self._transform = transform

    def open(self) -> DatasetIterator[T]:
        return FilterDatasetIterator(self._parent.__iter__(), self._transform)

    def __str__(self) -> str:
        return f"FilterIterDataset(transform={transform_name(self._transform)})"


class FilterDatasetIterator(ElementIterator[T]):
    """A position in a FilterIterDataset: after the last element that was looked at.

    Of a chunk all elements are looked at, and the parent is put back. It moves on, up to an element
    that is kept, when that one is given.
    """

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._keeps: Callable[[Any], Any] = method_or_function(transform, "Filter", "filter")
        self._watch = DropWatch(self, self.context.options)
        # A window that ends in an error has to end at the very element.
        self._chunks = parent.takes_back and not self._watch.raises
        # Elements that were looked at before their turn, and what the function said of them.
        self._elements: Sequence[Any] = ()
        self._verdicts: Sequence[Any] = ()
        self._given = [0]  # Where the parent stood before each element of the last `take`, and now.
        self._position = 0  # How many of those were given and not put back.

    @property
    def moves_at_end(self) -> bool:
        return True  # Over the elements that were dropped.

    def __next__(self) -> T:
        try:
            if self._verdicts:
                for held in self.take(1):
                    return held
                raise StopIteration
            keeps, parent, watch = self._keeps, self.parent, self._watch
            while True:
                element = next(parent)
                try:
                    kept = keeps(element)
                except Exception as error:
                    self.explain(error, self._transform)
                    raise
                watch.see(1, 0 if kept else 1)
                if kept:
                    return element  # type: ignore[no-any-return]
        except Exception as error:
            keep_user_frames(error)
            raise

    def take(self, count: int) -> list[T]:
        if not self._chunks:
            return super(ElementIterator, self).take(count)
        if self._position < len(self._given) - 1:
            self._forget_held()  # What was put back is looked at again.
        while True:
            if not self._verdicts and not self._look_at(min(count, self._watch.left_in_window)):
                return []
            verdicts, stop = self._verdicts, len(self._verdicts)
            if type(verdicts) is PartlyFailed:
                stop = verdicts.next_failure(0)
            ends = [end for end, keep in enumerate(verdicts[:stop], 1) if keep][:count]
            if ends:
                elements = self._elements
                kept = [elements[end - 1] for end in ends]
                self._move_on(ends[-1], len(ends))
                self._given, self._position = [0, *ends], len(ends)
                return kept
            if stop < len(verdicts):
                failure = verdicts[stop]
                self._move_on(stop + 1, 1)
                self.raise_explained(failure)
            self._move_on(stop, 0)

    def _look_at(self, count: int) -> bool:
        """Take some elements of the parent and ask the function; return whether there are any."""
        self._given, self._position = [0], 0
        elements = self.parent.take(count)
        verdicts: list[Any] = []
        try:
            self.transform_chunk(verdicts, elements)
        except BaseException as error:
            verdicts = after_failure(error, verdicts, self.transform_chunk, self, elements)
        self.parent.put_back(len(elements))
        self._elements, self._verdicts = elements, verdicts
        return bool(elements)

    def _move_on(self, count: int, kept: int) -> None:
        """Move over elements that were looked at."""
        self.parent.pass_over(count)
        self._elements, self._verdicts = self._elements[count:], self._verdicts[count:]
        self._watch.see(count, count - kept)

    def put_back(self, count: int) -> None:
        given, position = self._given, self._position
        self._position = position - count
        self.parent.put_back(given[position] - given[position - count])

    def pass_over(self, count: int) -> None:
        given, position = self._given, self._position
        self._position = position + count
        self.parent.pass_over(given[position + count] - given[position])

    def _forget_held(self) -> None:
        super()._forget_held()
        self._elements = self._verdicts = ()
        self._given, self._position = [0], 0

    def transform_chunk(self, results: list[Any], elements: list[Any]) -> None:
        keeps = self._keeps
        for element in elements:
            results.append(keeps(element))  # noqa: PERF401  (what was made is kept if it raises)
