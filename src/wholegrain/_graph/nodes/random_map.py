"""Replaces each element by a function of it and of a random generator of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.names import transform_name
from wholegrain._core.rng import RngPool
from wholegrain._core.types import Indices, State, T
from wholegrain._graph.chunks import for_each
from wholegrain._graph.element_iterator import ElementIterator
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import (
    ElementTransform,
    OneParentIterNode,
    method_or_function,
    spec_after,
)
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.seeds import checked_seed, resolve_seed
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


class RandomMapMapDataset(ElementTransform[T]):
    """A function of each element and the random numbers of its index."""

    checkpoint = CheckpointSpec(free=("transform", "seed"), position="parent")
    _repeats_itself = False
    is_random = True

    def __init__(self, parent: MapDataset[Any], transform: Any, seed: int | None) -> None:
        super().__init__(parent, transform)
        self._seed = checked_seed(resolve_seed(self, seed, "random_map"))
        self._function = method_or_function(transform, "RandomMap", "random_map")
        self._pool: RngPool | None = None
        self._part: tuple[int, int] | None = None

    def count_from(self, start: int, whole_length: int) -> None:
        """Use the random numbers that the elements have in the dataset that this is a part of."""
        self._part = (start, whole_length)

    def _positions(self, indices: Indices) -> list[int]:
        if self._part is None:
            return indices.tolist()  # type: ignore[no-any-return]
        start, whole_length = self._part
        epochs, positions = np.divmod(indices, len(self))
        return (epochs * whole_length + start + positions).tolist()  # type: ignore[no-any-return]

    def _rng_pool(self) -> RngPool:
        if self._pool is None:
            self._pool = RngPool(self._seed)
        return self._pool

    def apply_to(self, element: Any, index: int) -> T | None:
        if self._part is not None:
            (index,) = self._positions(np.array([index]))
        with self._rng_pool().lend() as move:
            return self._function(element, move(index))  # type: ignore[no-any-return]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        function = self._function
        with self._rng_pool().lend() as move:

            def call_each(results: list[Any], elements: Sequence[Any], at: list[int]) -> None:
                for element, position in zip(elements, at, strict=True):
                    results.append(None if element is None else function(element, move(position)))

            elements = self.parent.getitems(indices)
            return for_each(call_each, self, indices, elements, self._positions(indices))


class RandomMapIterDataset(OneParentIterNode[T]):
    """A function of each element and the random numbers of its position."""

    checkpoint = CheckpointSpec(free=("transform", "seed"))
    _repeats_itself = False
    is_random = True
    counting = CountingRule(counter="index_for_rng")

    def __init__(self, parent: Any, transform: Any, seed: int | None) -> None:
        super().__init__(parent)
        # Raise here, not when the first element is read.
        method_or_function(transform, "RandomMap", "random_map")
        self._transform = transform
        self._seed = checked_seed(resolve_seed(self, seed, "random_map"))

    def open(self) -> DatasetIterator[T]:
        return RandomMapDatasetIterator(self._parent.__iter__(), self._transform, self._seed)

    @property
    def _element_spec(self) -> Any:
        return spec_after(self._transform, self._parent)

    def __str__(self) -> str:
        return f"RandomMapIterDataset(transform={transform_name(self._transform)})"


class RandomMapDatasetIterator(ElementIterator[T]):
    """A position in a RandomMapIterDataset.

    Worker `w` of `n` has every n-th position starting at `w`, so that a pipeline draws the same
    numbers with any number of workers.
    """

    state_fields = ("index_for_rng",)

    def __init__(self, parent: DatasetIterator[Any], transform: Any, seed: int) -> None:
        super().__init__(parent, transform)
        self._function = method_or_function(transform, "RandomMap", "random_map")
        self._first = self.context.worker_index
        self._stride = self.context.worker_count
        self._lease = RngPool(seed).lend()
        self._move = self._lease.__enter__()  # This iterator keeps the generator for its life.
        self.index_for_rng = 0

    def __next__(self) -> T:
        if self._held is not None:
            return self.next_held()
        element = next(self.parent)
        index = self.index_for_rng
        self.index_for_rng = index + 1
        if element is None:
            return None  # type: ignore[return-value]
        try:
            return self._function(  # type: ignore[no-any-return]
                element, self._move(self._first + index * self._stride)
            )
        except Exception as error:
            self.explain(error, self._transform)
            raise

    def transform_chunk(self, results: list[Any], elements: list[Any]) -> None:
        function, move = self._function, self._move
        stride = self._stride
        index = self._first + (self.index_for_rng + len(results)) * stride
        for element in elements:
            results.append(None if element is None else function(element, move(index)))
            index += stride

    def counted(self, count: int) -> None:
        self.index_for_rng += count

    def get_state(self) -> State:
        # The same as what `state_fields` gives, but faster: it may be called for every element.
        return {"parent": self.parent.get_state(), "index_for_rng": self.index_for_rng}

    def _get_next_index(self) -> int:
        return self.index_for_rng

    def _set_next_index(self, index: int) -> None:
        self.go_to_index(index)
        self.index_for_rng = index
