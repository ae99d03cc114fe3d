"""The kinds of transformation: what all nodes of a kind have in common."""

from __future__ import annotations

import abc
import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from wholegrain._core.difference import show
from wholegrain._core.errors import add_stage_note
from wholegrain._core.failure import (
    Failure,
    PartlyFailed,
    is_anything_to_raise,
    to_raise_once,
)
from wholegrain._core.interruption import is_interruption
from wholegrain._core.names import transform_name
from wholegrain._core.stack import Empty
from wholegrain._core.types import IndexT, Indices, NDArray, T
from wholegrain._core.whole_number import whole_number
from wholegrain._graph import fusion, nodes, run
from wholegrain._graph.chunks import for_each
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.run_iterator import Run
from wholegrain._graph.timed import with_clocks
from wholegrain._graph.user_functions import method_or_function as method_or_function
from wholegrain._observe import outline

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

AnyDataset: TypeAlias = IterDataset[T] | MapDataset[T]
"""The datasets that an iterable node may read from."""


_ELEMENTS_OF_COMPONENT = 64
"""How many elements of each component a chunk should contain."""


class MapNode(MapDataset[T]):
    """A random-access node of our own: it defines `getitem` and `getitems`."""

    def __init__(self, parents: MapDataset[Any] | Sequence[MapDataset[Any]] = ()) -> None:
        given: Any = parents
        for parent in given if isinstance(given, (list, tuple)) else (given,):
            if not isinstance(parent, MapDataset):
                raise _wrong_parent(self, "MapDatasets", parent)
        super().__init__(parents)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, builtins.slice):
            return self.slice(index)
        position = whole_number("index", index, "`ds[index]` takes a whole number or a slice")
        try:
            element = self.getitem(position)
            if is_anything_to_raise():
                for error in to_raise_once():
                    raise error
            return element
        except Exception as error:
            add_read_note(error, self, position)
            raise

    @abc.abstractmethod
    def getitem(self, index: int) -> T | None:
        """Read one element."""

    @abc.abstractmethod
    def getitems(self, indices: Indices) -> Sequence[T | None]:
        """Read a chunk of elements.

        An element that cannot be read is a `Failure` at its position, and the chunk is then a
        `PartlyFailed`. An exception is raised only if it concerns the whole chunk.
        """


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
        """Map an index, or an array of indices, to the parent's."""

    def getitem(self, index: int) -> T | None:
        return self.parent.getitem(self.parent_index(index))

    @property
    def stacks(self) -> bool:  # type: ignore[override]
        return self.parent.stacks

    def getitem_into(self, index: int, empty: Empty) -> T | None:
        return self.parent.getitem_into(self.parent_index(index), empty)

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        return self.parent.getitems(self.parent_index(indices))

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        return self.parent.gather(self.parent_index(indices))

    def source_index(self, index: int) -> int:
        return self.parent.source_index(int(self.parent_index(index)))

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return -(-stop // len(self)) * len(self.parent) if len(self) else 0

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        return nodes.scanned(self.parent_index, stop, keys[0])

    def _traced(self, tracer: Tracer) -> Any:
        return tracer.passing(self)


class ElementTransform(OneParentMapNode[T]):
    """A transformation that only computes a new element from the parent's."""

    def __init__(self, parent: MapDataset[Any], transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform

    @abc.abstractmethod
    def apply_to(self, element: Any, index: int) -> T | None:
        """Compute the new element at `index`. It is not called for missing elements."""

    def getitem(self, index: int) -> T | None:
        element = self.parent.getitem(index)
        return None if element is None else self.apply_to(element, index)

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        positions = indices.tolist()
        return for_each(self._pass, self, positions, self.parent.getitems(indices), positions)

    def _pass(self, results: list[Any], elements: Sequence[Any], indices: list[int]) -> None:
        apply_to = self.apply_to
        for element, index in zip(elements, indices, strict=True):
            results.append(None if element is None else apply_to(element, index))

    def _traced(self, tracer: Tracer) -> Any:
        return tracer.elements(self)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return stop

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        return keys[0]

    @property
    def _element_spec(self) -> Any:
        return spec_after(self._transform, self.parent)

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={transform_name(self._transform)})"


class FunctionTransform(ElementTransform[T]):
    """A transformation that only calls a function of the element.

    Several of them in a row process a chunk in one pass.
    """

    kind: ClassVar[str]

    def __init__(
        self, parent: MapDataset[Any], transform: Any, function: Callable[[Any], Any]
    ) -> None:
        super().__init__(parent, transform)
        self._function = function

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        stages, functions, kinds = [self], [self._function], self.kind
        first: MapDataset[Any] = self.parent
        while isinstance(first, FunctionTransform):
            stages.append(first)
            functions.append(first._function)
            kinds += first.kind
            first = first.parent
        row, run_all, functions = stages[::-1], fusion.one_pass(kinds[::-1]), functions[::-1]
        return for_each(
            lambda results, elements: run_all(results, elements, *functions),
            self,
            indices,
            first.getitems(indices),
            which=lambda error: row[fusion.failed_step(error)],
        )


class ManyParentsMapNode(MapNode[T]):
    """A random-access node over several datasets; each element comes from one of them."""

    @abc.abstractmethod
    def locate(self, index: int) -> tuple[int, int]:
        """Return which parent has the element at `index`, and the index there."""

    @abc.abstractmethod
    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the same for an array of indices."""

    def getitem(self, index: int) -> T | None:
        return self._read_at(*self.locate(index))

    def _read_at(self, component: int, key: int) -> T | None:
        try:
            return self._parents[component].getitem(key)
        except Exception as error:
            add_stage_note(error, f"It came from component {component} of {self}.")
            raise

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        return self.read_at(*self.locate_many(indices))

    def read_at(self, components: Indices, keys: Indices) -> Sequence[T | None]:
        """Read the elements at some indices of some parents."""
        # Read all elements of a component at once. A stable sort keeps the keys in order.
        if len(self._parents) < 1 << 15:
            components = components.astype(np.int16)  # numpy sorts these in linear time.
        order = np.argsort(components, kind="stable")
        counts = np.bincount(components, minlength=len(self._parents))
        ordered_keys = keys[order]
        found: list[T | None] = []
        start = 0
        failed = False
        for component, count in enumerate(counts.tolist()):
            if count:
                part = self._parents[component].getitems(ordered_keys[start : start + count])
                if type(part) is PartlyFailed:
                    failed = True
                    self._note_component(part, component)
                found += part
                start += count
        positions = np.empty(len(order), np.int64)
        positions[order] = np.arange(len(order))
        elements = [found[position] for position in positions.tolist()]
        return PartlyFailed(elements) if failed else elements

    def _note_component(self, part: PartlyFailed, component: int) -> None:
        for failure in part:
            if type(failure) is Failure and not isinstance(failure.error, StopIteration):
                add_stage_note(failure.error, f"It came from component {component} of {self}.")

    @property
    def chunk_hint(self) -> int:
        # Each component is read once per chunk, however few of the elements it has.
        hints = [max(_ELEMENTS_OF_COMPONENT, parent.chunk_hint) for parent in self._parents]
        return sum(hints)

    def source_index(self, index: int) -> int:
        component, key = self.locate(index)
        return self._parents[component].source_index(key)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        components, keys = self.locate_many(np.arange(stop))
        return int(keys[components == number].max(initial=-1)) + 1

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        components, found = self.locate_many(np.arange(stop))
        here = [(components == n) & np.isin(found, own) for n, own in enumerate(keys)]
        return np.flatnonzero(np.any(here, axis=0))

    def _traced(self, tracer: Tracer) -> Any:
        return tracer.passing(self)

    @property
    def _element_spec(self) -> Any:
        return self._parents[0]._element_spec


class IterNode(IterDataset[T]):
    """An iterable node of this library. It has to define `open`.

    It may also define `checkpoint`, `counting`, `set_slice` and `_element_spec`. Its iterator
    defines `__next__`, `state_fields` or `check_state` and `go_to`, and may define `take`,
    `moves_at_end` and `close`. ARCHITECTURE.md explains them.
    """

    def __init__(self, parents: Any = ()) -> None:
        super().__init__(parents)
        for parent in self._parents:
            if not isinstance(parent, (MapDataset, IterDataset)):
                raise _wrong_parent(self, "datasets", parent)

    def __iter__(self) -> DatasetIterator[T]:
        if not run.is_opening():
            return Run(self)
        context = run.current()
        iterator = self.open()
        iterator.opened_from = self
        if context.observed.opened(iterator, self):
            return with_clocks(iterator)  # type: ignore[no-any-return]
        return iterator

    @abc.abstractmethod
    def open(self) -> DatasetIterator[T]:
        """Return an iterator that reads from newly opened iterators of the parents."""


class OneParentIterNode(IterNode[T]):
    """An iterable node over one dataset."""

    def __init__(self, parent: Any) -> None:
        super().__init__((parent,))

    @property
    def _element_spec(self) -> Any:
        return self._parent._element_spec


def several(method: str, datasets: Any) -> tuple[Any, ...]:
    """Return the datasets that were passed to a method; raise if they are not a list of them."""
    if isinstance(datasets, (MapDataset, IterDataset)) or not isinstance(datasets, Iterable):
        what = outline.label(datasets)
        raise TypeError(f"`{method}` takes a list of datasets, but got {what}: put it in brackets.")
    if isinstance(datasets, Mapping) and datasets:
        raise TypeError(
            f"`{method}` takes a list of datasets, but got a mapping with the keys"
            f" {list(datasets)}. Only `mix` knows datasets by name."
        )
    return tuple(datasets)


def _wrong_parent(node: Any, wanted: str, found: Any) -> TypeError:
    name = type(node).__name__
    if isinstance(found, IterDataset):
        found = "an IterDataset. Put it before `to_iter_dataset()`."
    else:
        found = f"{show(found)}. `MapDataset.source(...)` makes a dataset of a list or a source."
    return TypeError(f"`{name}` reads from {wanted}, but got {found}")


def spec_after(transform: Any, parent: Any) -> Any:
    """Return the spec of the elements after `transform`, if it says what it does."""
    output_spec = getattr(transform, "output_spec", None)
    if output_spec is None:
        raise ValueError(
            f"The element spec after {transform_name(transform)} is not known: give the"
            " transformation a method `output_spec(input_spec)`."
        )
    return output_spec(parent._element_spec)


def add_read_note(
    error: BaseException, dataset: MapDataset[Any], index: int, failure: Failure | None = None
) -> Any:
    """Note at which element of which stage reading `dataset[index]` failed; return the stage."""
    stage: Any = dataset
    at = index
    if failure is not None:
        stage, at = failure.stage, failure.at
    # Skip the caller's frame: reading `f_locals` would keep the error alive in it.
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
    except Exception as another:
        if is_interruption(another):
            raise
        source = at
    if getattr(dataset, "is_share", False):  # A worker's shard: report the index in the whole.
        whole: Any = dataset
        index = whole.parent_index(index)
    add_stage_note(
        error,
        f"This happened in {stage}, element {at} there, element {index} of the pipeline,"
        f" index {source} of the source.",
    )
    return stage
