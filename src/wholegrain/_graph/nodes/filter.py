"""The elements for which a function is true."""

from collections.abc import Callable
from typing import Any

from wholegrain._core.names import transform_name
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import State, T
from wholegrain._graph import fusion
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
    """A position in a FilterIterDataset: behind the last element that was looked at."""

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._keeps: Callable[[Any], Any] = method_or_function(transform, "Filter", "filter")
        self._watch = DropWatch(self, self.context.options)
        # A window that ends in an error has to end at the very element.
        self._reads_chunks = parent.takes_back and not self._watch.raises
        self._pending: Exception | None = None  # Of an element behind those handed out.

    @property
    def moves_at_end(self) -> bool:
        return True  # Over the elements that were dropped.

    @property
    def takes_back(self) -> bool:
        return False  # How many elements were dropped between two is not kept.

    def __next__(self) -> T:
        try:
            keeps, parent, watch = self._keeps, self.parent, self._watch
            if self._pending is not None:
                self._raise_pending()
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
        if not self._reads_chunks:
            return super(ElementIterator, self).take(count)
        if self._pending is not None:
            self._raise_pending()
        kept: list[T] = []
        # As many are looked at as are missing, so the last one that was looked at is kept.
        while len(kept) < count:
            try:
                elements = self.parent.take(min(count - len(kept), self._watch.left_in_window))
            except Exception as error:
                if not kept:
                    raise
                self._pending = error.with_traceback(None)  # Its turn is behind those.
                break
            if not elements:
                break
            verdicts: list[Any] = []
            try:
                self.transform_chunk(elements, verdicts)
            except Exception as error:
                good = len(verdicts)
                first = not kept and not any(verdicts)
                # Unless it comes first, the one that failed fails again when its turn comes.
                self.parent.put_back(len(elements) - good - first)
                self._watch.see(good, good - self._keep(elements, verdicts, kept))
                if first:
                    self.explain(error, self._transform)
                    raise
                break
            seen = len(elements)
            self._watch.see(seen, seen - self._keep(elements, verdicts, kept))
        return kept

    @staticmethod
    def _keep(elements: list[T], verdicts: list[Any], kept: list[T]) -> int:
        """Add the elements that are kept to `kept`; return how many."""
        before = len(kept)
        kept += [e for e, keep in zip(elements, verdicts, strict=False) if keep]
        return len(kept) - before

    def _raise_pending(self) -> None:
        pending, self._pending = self._pending, None
        assert pending is not None
        try:
            raise pending
        finally:
            del pending  # It knows this frame: without that, neither would go.

    def set_state(self, state: State) -> None:
        super().set_state(state)
        self._pending = None

    def close(self) -> None:
        self._pending = None
        super().close()

    def transform_chunk(self, elements: list[Any], results: list[Any]) -> None:
        keeps, append = self._keeps, results.append
        for element in elements:
            append(keeps(element))
