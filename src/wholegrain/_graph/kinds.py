"""The kinds of transformation: what all nodes of a kind have in common is said here, once."""

from __future__ import annotations

import abc
import builtins
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from wholegrain._core.errors import add_stage_note
from wholegrain._core.names import transform_name
from wholegrain._core.types import IndexT, Indices, NDArray, T
from wholegrain._graph import fusion, run
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.map_dataset import MapDataset


class MapNode(MapDataset[T]):
    """A random-access node of our own: it defines `getitem` and `getitems`."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, builtins.slice):
            return self.slice(index)
        position = operator.index(index)
        try:
            return self.getitem(position)
        except Exception as error:
            add_read_note(error, self, position)
            raise

    @abc.abstractmethod
    def getitem(self, index: int) -> T | None:
        """Read one element."""

    @abc.abstractmethod
    def getitems(self, indices: Indices) -> Sequence[T | None]:
        """Read a chunk of elements."""


class OneParentMapNode(MapNode[T]):
    """A random-access node over one dataset."""

    def __init__(self, parent: MapDataset[Any]) -> None:
        super().__init__(parent)
        self.parent = parent

    def _follow_parents(self) -> None:
        (self.parent,) = self._parents

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def _element_spec(self) -> Any:
        return self.parent._element_spec


class IndexTransform(OneParentMapNode[T]):
    """A transformation that only decides where in the parent an element comes from."""

    @abc.abstractmethod
    def parent_index(self, index: IndexT) -> IndexT:
        """Map an index, or an array of them, to the parent's."""

    def getitem(self, index: int) -> T | None:
        return self.parent.getitem(self.parent_index(index))

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        return self.parent.getitems(self.parent_index(indices))

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        return self.parent.gather(self.parent_index(indices))

    def source_index(self, index: int) -> int:
        return self.parent.source_index(int(self.parent_index(index)))


class ElementTransform(OneParentMapNode[T]):
    """A transformation that only computes a new element from the parent's."""

    def __init__(self, parent: MapDataset[Any], transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform

    @abc.abstractmethod
    def apply_to(self, element: Any, index: int) -> T | None:
        """Compute the new element at `index`. Missing elements do not come here."""

    def getitem(self, index: int) -> T | None:
        element = self.parent.getitem(index)
        return None if element is None else self.apply_to(element, index)

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        apply_to = self.apply_to
        return [
            None if element is None else apply_to(element, index)
            for element, index in zip(self.parent.getitems(indices), indices.tolist(), strict=True)
        ]

    @property
    def _element_spec(self) -> Any:
        return spec_after(self._transform, self.parent)

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={transform_name(self._transform)})"


class FunctionTransform(ElementTransform[T]):
    """A transformation that only calls a function of the element.

    Several in a row go through a chunk in one pass.
    """

    kind: ClassVar[str]

    def __init__(
        self, parent: MapDataset[Any], transform: Any, function: Callable[[Any], Any]
    ) -> None:
        super().__init__(parent, transform)
        self._function = function

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        functions, kinds = [self._function], self.kind
        first: MapDataset[Any] = self.parent
        while isinstance(first, FunctionTransform):
            functions.append(first._function)
            kinds += first.kind
            first = first.parent
        elements = first.getitems(indices)
        return fusion.one_pass(kinds[::-1])(elements, *functions[::-1])


class ManyParentsMapNode(MapNode[T]):
    """A random-access node over several datasets, one of which has the element."""

    @abc.abstractmethod
    def locate(self, index: int) -> tuple[int, int]:
        """Return which parent has the element at `index`, and the index there."""

    @abc.abstractmethod
    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the same for an array of indices."""

    def getitem(self, index: int) -> T | None:
        component, key = self.locate(index)
        try:
            return self._parents[component].getitem(key)
        except Exception as error:
            add_stage_note(error, f"It came from component {component} of {self}.")
            raise

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        components, keys = self.locate_many(indices)
        # Components in turn, each with all of its elements: stable, so keys stay in order.
        order = np.argsort(components, kind="stable")
        counts = np.bincount(components, minlength=len(self._parents))
        ordered_keys = keys[order]
        found: list[T | None] = []
        start = 0
        for component, count in enumerate(counts.tolist()):
            if count:
                found += self._parents[component].getitems(ordered_keys[start : start + count])
                start += count
        elements: list[T | None] = [None] * len(found)
        for place, element in zip(order.tolist(), found, strict=True):
            elements[place] = element
        return elements

    def source_index(self, index: int) -> int:
        component, key = self.locate(index)
        return self._parents[component].source_index(key)

    @property
    def _element_spec(self) -> Any:
        return self._parents[0]._element_spec


class IterNode(IterDataset[T]):
    """An iterable node of our own: it defines `open`."""

    def __iter__(self) -> DatasetIterator[T]:
        with run.opening(self) as context:
            watch = context.watch
            iterator = self.open() if watch is None else watch.open(self)
        iterator.opened_from = self
        context.observed.opened(iterator, self, is_output=not run.is_opening())
        return iterator

    @abc.abstractmethod
    def open(self) -> DatasetIterator[T]:
        """Return an iterator, and those of the parents below it."""


class OneParentIterNode(IterNode[T]):
    """An iterable node over one dataset."""

    def __init__(self, parent: Any) -> None:
        super().__init__(parent)

    @property
    def _element_spec(self) -> Any:
        return self._parent._element_spec


def spec_after(transform: Any, parent: Any) -> Any:
    """Return the spec of the elements after `transform`, if it says what it does."""
    output_spec = getattr(transform, "output_spec", None)
    if output_spec is None:
        raise ValueError(
            f"The element spec after {transform_name(transform)} is not known: give the"
            " transformation a method `output_spec(input_spec)`."
        )
    return output_spec(parent._element_spec)


def method_or_function(transform: Any, base: str, method: str) -> Callable[..., Any]:
    """Return the method of a transformation object, or the function that was given.

    Args:
        transform: What was given.
        base: The name of the class in `transforms` that such objects are of.
        method: The name of their method.
    """
    # If nobody has imported them, there are no such objects: a worker need not wait for it.
    transforms = sys.modules.get("wholegrain.transforms")
    if transforms is not None and isinstance(transform, getattr(transforms, base)):
        function: Callable[..., Any] = getattr(transform, method)
        return function
    if not callable(transform):
        raise TypeError(
            f"`{method}` needs a function, or an object of a class that is derived from"
            f" `transforms.{base}`, but got {transform!r}."
        )
    return transform  # type: ignore[no-any-return]


def add_read_note(error: BaseException, dataset: MapDataset[Any], index: int) -> Any:
    """Say in which stage, at which element, reading `dataset[index]` failed; return the stage."""
    stage: Any = dataset
    at = index
    # Not the frame of the caller: looking at its variables would keep the error alive in it.
    traceback = error.__traceback__ and error.__traceback__.tb_next
    while traceback is not None:
        found = traceback.tb_frame.f_locals
        if isinstance(found.get("self"), MapDataset) and isinstance(found.get("index"), int):
            stage, at = found["self"], found["index"]
        traceback = traceback.tb_next
    try:
        if isinstance(error, ZeroDivisionError) and not len(stage):
            add_stage_note(error, f"{stage} is empty: there is no element to read.")
            return stage
        source = stage.source_index(at)
    except Exception:
        source = at
    add_stage_note(
        error,
        f"This happened in {stage}, element {at} there, element {index} of the pipeline,"
        f" index {source} of the source.",
    )
    return stage
