"""Replaces each element by a function of it and of a random generator of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.rng import RngPool
from wholegrain._core.types import Indices, T
from wholegrain._graph import fusion
from wholegrain._graph.chunks import for_each
from wholegrain._graph.element_iterator import CountingIterator, FunctionIterNode
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import ElementTransform, method_or_function
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.seeds import checked_seed, resolve_seed
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


class RandomMapMapDataset(ElementTransform[T]):
    """A function of each element and the random numbers of its index."""

    checkpoint = CheckpointSpec(free=("transform", "seed"), position="parent")
    _repeats_itself = False
    is_random = True
    same_each_epoch = False

    def __init__(self, parent: MapDataset[Any], transform: Any, seed: int | None) -> None:
        super().__init__(parent, transform)
        self._seed = checked_seed(resolve_seed(self, seed, "random_map"))
        self._function = method_or_function(transform, "RandomMap", "random_map")
        self._pool: RngPool | None = None
        self._part: tuple[int, int] | None = None

    def _follow_parents(self) -> None:
        super()._follow_parents()
        self._pool = None  # It belongs to the seed, which may be another one now.

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


class RandomMapIterDataset(FunctionIterNode[T]):
    """A function of each element and the random numbers of its position."""

    takes = ("RandomMap", "random_map")
    checkpoint = CheckpointSpec(free=("transform", "seed"))
    _repeats_itself = False
    is_random = True
    counting = CountingRule(counter="index_for_rng")

    def __init__(self, parent: Any, transform: Any, seed: int | None) -> None:
        super().__init__(parent, transform)
        self._seed = checked_seed(resolve_seed(self, seed, "random_map"))

    def open(self) -> DatasetIterator[T]:
        function = self.function_of(self._transform)
        parent = self._parent.__iter__()
        return RandomMapDatasetIterator(parent, self._transform, function, self._seed)


class RandomMapDatasetIterator(CountingIterator[T]):
    """A position in a RandomMapIterDataset.

    Worker `w` of `n` has every n-th position starting at `w`, so that a pipeline draws the same
    numbers with any number of workers.
    """

    kind = fusion.RANDOM
    state_fields = ("index_for_rng",)

    def __init__(
        self,
        parent: DatasetIterator[Any],
        transform: Any,
        function: Callable[[Any, Any], Any],
        seed: int,
    ) -> None:
        super().__init__(parent, transform, function)
        self._lease = RngPool(seed).lend()
        self._move = self._lease.__enter__()  # This iterator keeps the generator for its life.

    def _position(self, number: int) -> int:
        return self.context.worker_index + number * self.context.worker_count

    def arguments(self) -> tuple[Any, ...]:
        return self._function, self._move, self._position(self.count), self.context.worker_count

    def call(self, element: Any, number: int) -> T:
        rng = self._move(self._position(number))
        return self._function(element, rng)  # type: ignore[no-any-return]
