"""Replaces each element by a function of its index and the element."""

from collections.abc import Sequence
from typing import Any

from wholegrain._core.names import transform_name
from wholegrain._core.types import T
from wholegrain._graph.element_iterator import ElementIterator
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import (
    ElementTransform,
    OneParentIterNode,
    method_or_function,
    spec_after,
)
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


class MapWithIndexMapDataset(ElementTransform[T]):
    """A function of each index and element, by index."""

    checkpoint = CheckpointSpec(free=("transform",), position="parent")
    _repeats_itself = False

    def __init__(self, parent: MapDataset[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._function = method_or_function(transform, "MapWithIndex", "map_with_index")

    def apply_to(self, element: Any, index: int) -> T | None:
        return self._function(index, element)  # type: ignore[no-any-return]

    def _pass(self, results: list[Any], elements: Sequence[Any], indices: list[int]) -> None:
        function = self._function
        for element, index in zip(elements, indices, strict=True):
            results.append(None if element is None else function(index, element))


class MapWithIndexIterDataset(OneParentIterNode[T]):
    """A function of each position and element, in order."""

    checkpoint = CheckpointSpec(free=("transform",))
    _repeats_itself = False
    counting = CountingRule(counter="counter")

    def __init__(self, parent: Any, transform: Any) -> None:
        super().__init__(parent)
        # Raise here, not when the first element is read.
        method_or_function(transform, "MapWithIndex", "map_with_index")
        self._transform = transform

    def open(self) -> DatasetIterator[T]:
        return MapWithIndexDatasetIterator(self._parent.__iter__(), self._transform)

    @property
    def _element_spec(self) -> Any:
        return spec_after(self._transform, self._parent)

    def __str__(self) -> str:
        return f"MapWithIndexIterDataset(transform={transform_name(self._transform)})"


class MapWithIndexDatasetIterator(ElementIterator[T]):
    """A position in a MapWithIndexIterDataset."""

    state_fields = ("counter",)

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._function = method_or_function(transform, "MapWithIndex", "map_with_index")
        self.counter = 0

    def __next__(self) -> T:
        if self._held is not None:
            return self.next_held()
        element = next(self.parent)
        counter = self.counter
        self.counter = counter + 1
        if element is None:
            return None  # type: ignore[return-value]
        try:
            return self._function(counter, element)  # type: ignore[no-any-return]
        except Exception as error:
            self.explain(error, self._transform)
            raise

    def transform_chunk(self, results: list[Any], elements: list[Any]) -> None:
        function = self._function
        for counter, element in enumerate(elements, self.counter + len(results)):
            results.append(None if element is None else function(counter, element))

    def counted(self, count: int) -> None:
        self.counter += count

    def _get_next_index(self) -> int:
        return self.counter

    def _set_next_index(self, index: int) -> None:
        self.go_to_index(index)
        self.counter = index
