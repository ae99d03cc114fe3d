"""The elements for which a function is true."""

from collections.abc import Callable
from typing import Any, NoReturn

from wholegrain._core.failure import Failure, PartlyFailed, can_be_recorded
from wholegrain._core.names import transform_name
from wholegrain._core.types import T
from wholegrain._graph import fusion
from wholegrain._graph.chunks import after_failure
from wholegrain._graph.drop_watch import DropWatch
from wholegrain._graph.element_iterator import ElementIterator
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import FunctionTransform, OneParentIterNode, method_or_function
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
        return f"{name} leaves gaps: `ds[i]` may be None, and iteration skips those."


class FilterIterDataset(OneParentIterNode[T]):
    """The elements for which a function is true, in order."""

    keeps_size = True
    checkpoint = CheckpointSpec(free=("transform",), position="regrouped")

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
    """A position in a FilterIterDataset: behind the last element that was looked at."""

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._keeps: Callable[[Any], Any] = method_or_function(transform, "Filter", "filter")
        self._watch = DropWatch(self, self.context.options)
        # A window that ends in an error has to end at the very element.
        self._reads_chunks = parent.takes_back and not self._watch.raises
        # Elements that were looked at before their turn, with the verdicts in `_held`.
        self._held_elements: list[Any] = []

    @property
    def moves_at_end(self) -> bool:
        return True  # Over the elements that were dropped.

    @property
    def takes_back(self) -> bool:
        return False  # How many elements were dropped between two is not kept.

    def __next__(self) -> T:
        keeps, parent, watch = self._keeps, self.parent, self._watch
        if self._held is not None:
            for held in self.take(1):
                return held
            raise StopIteration
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

    def take(self, count: int) -> list[T]:
        if not self._reads_chunks:
            return super(ElementIterator, self).take(count)
        kept: list[T] = []
        # As many are looked at as are missing, so the last one that was looked at is kept.
        while len(kept) < count:
            most = min(count - len(kept), self._watch.left_in_window)
            verdicts: list[Any] = []
            if self._held is not None:
                elements = self._take_over(most, verdicts)
                if not elements:
                    if kept:
                        break  # The turn of the one that failed is after those.
                    self._raise_held()
            else:
                try:
                    elements = self.parent.take(most)
                except Exception as error:
                    if not kept or not can_be_recorded(error):
                        raise
                    # The parent has moved over it already.
                    self._held_elements, self._held = [None], PartlyFailed([Failure(error)])
                    break
                if not elements:
                    break
                try:
                    self.transform_chunk(verdicts, elements)
                except BaseException as error:
                    self.parent.put_back(len(elements))
                    self._held = after_failure(
                        error, verdicts, self.transform_chunk, self, elements
                    )
                    self._held_elements = list(elements)
                    continue
            seen = len(elements)
            dropped = seen - self._keep(elements, verdicts, kept)
            try:
                self._watch.see(seen, dropped)
            except ValueError as error:
                if not kept:
                    raise
                self._held_elements, self._held = [None], PartlyFailed([Failure(error)])
                break
        return kept

    def _take_over(self, most: int, verdicts: list[Any]) -> list[Any]:
        """Return some elements that are held, with their verdicts; none if a failure is next."""
        held = self._held
        assert held is not None
        count = min(most, held.next_failure(0))
        elements = self._held_elements[:count]
        verdicts += held[:count]
        self._drop_held(count)
        self.parent.pass_over(count)
        return elements

    def _drop_held(self, count: int) -> None:
        assert self._held is not None
        del self._held[:count], self._held_elements[:count]
        if not self._held:
            self._held = None

    def _raise_held(self) -> NoReturn:
        assert self._held is not None
        failure: Failure = self._held[0]
        self._drop_held(1)
        try:
            if failure.stage is None:  # It is one of the parent.
                raise failure.error.with_traceback(failure.traceback)
            self.parent.pass_over(1)
            self.raise_explained(failure)
        finally:
            del failure  # It knows this frame: without that, neither would go.

    @staticmethod
    def _keep(elements: list[T], verdicts: list[Any], kept: list[T]) -> int:
        """Add the elements that are kept to `kept`; return how many."""
        before = len(kept)
        kept += [e for e, keep in zip(elements, verdicts, strict=False) if keep]
        return len(kept) - before

    def _forget_held(self) -> None:
        super()._forget_held()
        self._held_elements = []

    def transform_chunk(self, results: list[Any], elements: list[Any]) -> None:
        keeps = self._keeps
        for element in elements:
            results.append(keeps(element))  # noqa: PERF401  (what was made is kept if it raises)
