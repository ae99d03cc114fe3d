"""Replaces each element by a function of it."""

from collections.abc import Callable
from typing import Any

from wholegrain._core.names import transform_name
from wholegrain._core.types import T
from wholegrain._graph import fusion
from wholegrain._graph.element_iterator import ElementIterator
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import (
    FunctionTransform,
    OneParentIterNode,
    method_or_function,
    spec_after,
)
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


class MapIterDataset(OneParentIterNode[T]):
    """A function of each element, in order."""

    checkpoint = CheckpointSpec(free=("transform",), position="parent")
    counting = CountingRule()

    def __init__(self, parent: Any, transform: Any) -> None:
        super().__init__(parent)
        # Raise here, not when the first element is read.
        method_or_function(transform, "Map", "map")
        self._transform = transform

    def open(self) -> DatasetIterator[T]:
        return MapDatasetIterator(self._parent.__iter__(), self._transform)

    @property
    def _element_spec(self) -> Any:
        return spec_after(self._transform, self._parent)

    def __str__(self) -> str:
        return f"MapIterDataset(transform={transform_name(self._transform)})"


class MapDatasetIterator(ElementIterator[T]):
    """A position in a MapIterDataset."""

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent, transform)
        self._function: Callable[[Any], Any] = method_or_function(transform, "Map", "map")

    def __next__(self) -> T:
        if self._held is not None:
            return self.next_held()
        element = next(self.parent)
        if element is None:
            return None  # type: ignore[return-value]
        try:
            return self._function(element)  # type: ignore[no-any-return]
        except Exception as error:
            self.explain(error, self._transform)
            raise

    def transform_chunk(self, results: list[Any], elements: list[Any]) -> None:
        function = self._function
        for element in elements:
            # Append one by one: results before an exception are kept.
            results.append(None if element is None else function(element))  # noqa: PERF401

    def _get_next_index(self) -> int:
        return self.parent._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self.go_to_index(index)
