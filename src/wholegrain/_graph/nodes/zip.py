"""Zips datasets: tuples of the elements of several datasets."""

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.failure import PartlyFailed
from wholegrain._core.interruption import is_interruption
from wholegrain._core.origins import joined
from wholegrain._core.tolerated import group_of
from wholegrain._core.types import Indices, State, T
from wholegrain._graph import shard_states
from wholegrain._graph.iterator import (
    ClosedIterator,
    DatasetIterator,
    StageIterator,
    check_state_of,
    go_to_state_of,
)
from wholegrain._graph.kinds import AnyDataset, IterNode, MapNode, several
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import list_of, wrong_state

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


class ZipMapDataset(MapNode[tuple[T, ...]]):
    """The elements of several datasets at the same index, as a tuple.

    Args:
        parents: Datasets of the same length. If one of them has no element at an index, the tuple
            contains None.
    """

    def __init__(self, parents: Sequence[MapDataset[T]]) -> None:
        super().__init__(several("ZipMapDataset", parents))
        self._follow_parents()

    def _follow_parents(self) -> None:
        lengths = [len(parent) for parent in self._parents]
        if not lengths:
            raise ValueError("`ZipMapDataset` needs at least one dataset, but got none.")
        if len(set(lengths)) > 1:
            raise ValueError(
                f"`ZipMapDataset` needs datasets of the same length, but they have {lengths}."
                " Slice the longer ones."
            )
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def getitem(self, index: int) -> tuple[T, ...]:
        elements: list[Any] = [parent.getitem(index) for parent in self._parents]
        return tuple(elements)

    def getitems(self, indices: Indices) -> Sequence[tuple[T, ...]]:
        columns = [parent.getitems(indices) for parent in self._parents]
        rows = list(zip(*columns, strict=True))
        if not any(type(column) is PartlyFailed for column in columns):
            return rows
        # A tuple fails with the first of its members that failed and was not replaced.
        return PartlyFailed([group_of(row, is_whole=True) for row in rows])

    def _traced(self, tracer: "Tracer") -> Any:
        return tracer.passing(self).map(joined)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return stop

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        return np.concatenate(keys)

    @property
    def _element_spec(self) -> Any:
        return tuple(parent._element_spec for parent in self._parents)

    def __str__(self) -> str:
        return f"ZipMapDataset[{len(self._parents)} parents]"


class ZipIterDataset(IterNode[tuple[T, ...]]):
    """The next element of each of several datasets, as a tuple.

    Args:
        parents: The datasets.
        strict: Whether it is an error if they differ in length. If not, the shortest one ends it.
    """

    checkpoint = CheckpointSpec(free=("strict",))

    def __init__(self, parents: Sequence[AnyDataset[T]], *, strict: bool = True) -> None:
        super().__init__(several("ZipIterDataset", parents))
        if not self._parents:
            raise ValueError("`ZipIterDataset` needs at least one dataset, but got none.")
        self._strict = strict

    def open(self) -> DatasetIterator[tuple[T, ...]]:
        return ZipDatasetIterator([parent.__iter__() for parent in self._parents], self._strict)

    def set_slice(self, sl: builtins.slice, sequential_slice: bool = False) -> None:
        """Keep a part of each dataset. This shards a worker's copy."""
        self._parents = shard_states.sliced(self._parents, sl, sequential_slice)

    def _traced(self, tracer: "Tracer") -> Any:
        return tracer.passing(self).map(joined)

    @property
    def _element_spec(self) -> Any:
        return tuple(parent._element_spec for parent in self._parents)

    def __str__(self) -> str:
        return f"ZipIterDataset([{len(self._parents)} parents], strict={self._strict})"


class ZipDatasetIterator(StageIterator[tuple[T, ...]]):
    """A position in each of several datasets."""

    closes_when_dropped = False

    def __init__(self, parents: list[DatasetIterator[T]], strict: bool) -> None:
        super().__init__(parents)
        self._strict = strict

    def __next__(self) -> tuple[T, ...]:
        elements: list[T] = []
        try:
            for parent in self._parents:
                elements.append(next(parent))  # noqa: PERF401  (how many there are is needed)
        except StopIteration:
            if self._strict:
                self._check_all_ended(len(elements))
            raise
        except BaseException as error:
            if is_interruption(error):
                raise
            # The whole tuple is lost, so the remaining datasets skip an element, too.
            for parent in self._parents[len(elements) + 1 :]:
                try:
                    next(parent)
                except BaseException as another:
                    if is_interruption(another):
                        raise
            raise
        return tuple(elements)

    def _check_all_ended(self, ended: int) -> None:
        """Raise if a dataset ended before the others; `ended` is the number of the first one."""
        if ended:
            others = "argument 1" if ended == 1 else f"arguments 1-{ended}"
            raise ValueError(
                f"`ZipIterDataset`: argument {ended + 1} is shorter than {others}."
                " Pass `strict=False` to end with the shortest."
            )
        for number, parent in enumerate(self._parents[1:], 2):
            try:
                next(parent)
            except StopIteration:
                continue
            others = "argument 1" if number == 2 else f"arguments 1-{number - 1}"
            raise ValueError(
                f"`ZipIterDataset`: argument {number} is longer than {others}."
                " Pass `strict=False` to end with the shortest."
            )

    def get_state(self) -> State:
        return {"parents": [parent.get_state() for parent in self._parents]}

    def check_state(self, state: State) -> None:
        states = list_of(state, "parents", self)
        if len(states) != len(self._parents):
            raise wrong_state(
                self, f"it has {len(states)} parents, but {len(self._parents)} are zipped here"
            )
        for parent, parent_state in zip(self._parents, states, strict=True):
            check_state_of(parent, parent_state)

    def go_to(self, state: State) -> None:
        for parent, parent_state in zip(self._parents, state["parents"], strict=True):
            go_to_state_of(parent, parent_state)

    def get_shard_states(self) -> list[State]:
        """Return for each shard of the zipped datasets its state, and whether it has ended."""
        return shard_states.joined(self._parents)

    def set_shard_states(self, states: Sequence[Any]) -> None:
        """Go to the position at which each shard has the given state."""
        shard_states.distribute(self._parents, states, self)

    def close(self) -> None:
        super().close()
        self._parents = tuple(
            parent if isinstance(parent, ClosedIterator) else ClosedIterator(parent)
            for parent in self._parents
        )

    def __str__(self) -> str:
        return f"ZipDatasetIterator([{len(self._parents)} parents], strict={self._strict})"
