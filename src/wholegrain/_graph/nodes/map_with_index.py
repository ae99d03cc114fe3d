"""Replaces each element by a function of its index and the element."""

from collections.abc import Sequence
from typing import Any

from wholegrain._core.types import T
from wholegrain._graph import fusion
from wholegrain._graph.element_iterator import CountingIterator, FunctionIterNode
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import ElementTransform, method_or_function
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


class MapWithIndexMapDataset(ElementTransform[T]):
    """A function of each index and element, by index."""

    checkpoint = CheckpointSpec(free=("transform",), position="parent")
    _repeats_itself = False
    same_each_epoch = False

    def __init__(self, parent: MapDataset[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._function = method_or_function(transform, "MapWithIndex", "map_with_index")

    def apply_to(self, element: Any, index: int) -> T | None:
        return self._function(index, element)  # type: ignore[no-any-return]

    def _pass(self, results: list[Any], elements: Sequence[Any], indices: list[int]) -> None:
        function = self._function
        for element, index in zip(elements, indices, strict=True):
            results.append(None if element is None else function(index, element))


class MapWithIndexIterDataset(FunctionIterNode[T]):
    """A function of each position and element, in order."""

    takes = ("MapWithIndex", "map_with_index")
    element_argument = 1
    checkpoint = CheckpointSpec(free=("transform",))
    _repeats_itself = False
    counting = CountingRule(counter="counter")

    def open(self) -> DatasetIterator[T]:
        function = self.function_of(self._transform)
        return MapWithIndexDatasetIterator(self._parent.__iter__(), self._transform, function)


class MapWithIndexDatasetIterator(CountingIterator[T]):
    """A position in a MapWithIndexIterDataset."""

    kind = fusion.INDEXED
    state_fields = ("counter",)

    def arguments(self) -> tuple[Any, ...]:
        return self._function, self.count

    def call(self, element: Any, number: int) -> T:
        return self._function(number, element)  # type: ignore[no-any-return]
