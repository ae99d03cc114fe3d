"""Replaces each element by a function of it."""

from typing import Any

from wholegrain._core.types import T
from wholegrain._graph import fusion
from wholegrain._graph.element_iterator import ElementIterator, FunctionIterNode
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import FunctionTransform, method_or_function
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


class MapMapDataset(FunctionTransform[T]):
    """A function of each element, by index."""

    kind = fusion.MAP

    checkpoint = CheckpointSpec(free=("transform",), position="parent")

    def __init__(self, parent: MapDataset[Any], transform: Any) -> None:
        function = method_or_function(transform, "Map", "map")
        super().__init__(parent, transform, function)

    def apply_to(self, element: Any, index: int) -> T | None:
        return self._function(element)  # type: ignore[no-any-return]


class MapIterDataset(FunctionIterNode[T]):
    """A function of each element, in order."""

    takes = ("Map", "map")
    checkpoint = CheckpointSpec(free=("transform",), position="parent")
    counting = CountingRule()

    def open(self) -> DatasetIterator[T]:
        function = self.function_of(self._transform)
        return MapDatasetIterator(self._parent.__iter__(), self._transform, function)


class MapDatasetIterator(ElementIterator[T]):
    """A position in a MapIterDataset."""
