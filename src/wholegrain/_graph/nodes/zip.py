"""Tuples of the elements of several datasets."""

import contextlib
from collections.abc import Sequence
from typing import Any

from wholegrain._core.state import WrongStateError, list_of
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import Indices, State, T
from wholegrain._graph.iterator import ClosedIterator, DatasetIterator, check_state_of
from wholegrain._graph.kinds import IterNode, MapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.stage import Stage


class ZipMapDataset(MapNode[tuple[Any, ...]]):
    """The elements of several datasets at the same index, as a tuple.

    Args:
        parents: Datasets of the same length. Where one of them has no element, None stands in
            the tuple.
    """

    def __init__(self, parents: Sequence[MapDataset[Any]]) -> None:
        super().__init__(tuple(parents))
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

    def getitem(self, index: int) -> tuple[Any, ...]:
        return tuple([parent.getitem(index) for parent in self._parents])

    def getitems(self, indices: Indices) -> Sequence[tuple[Any, ...]]:
        columns = [parent.getitems(indices) for parent in self._parents]
        return list(zip(*columns, strict=True))

    @property
    def _element_spec(self) -> Any:
        return tuple(parent._element_spec for parent in self._parents)

    def __str__(self) -> str:
        return f"ZipMapDataset[{len(self._parents)} parents]"


class ZipIterDataset(IterNode[tuple[T, ...]]):
    """The next element of each of several datasets, as a tuple.

    Args:
        parents: The datasets.
        strict: Whether it is an error if they do not end together. If not, the shortest ends it.
    """

    _stage = Stage(free=("strict",))

    def __init__(self, parents: Sequence[Any], *, strict: bool = True) -> None:
        super().__init__(tuple(parents))
        if not self._parents:
            raise ValueError("`ZipIterDataset` needs at least one dataset, but got none.")
        self._strict = strict

    def open(self) -> DatasetIterator[tuple[T, ...]]:
        return ZipDatasetIterator([parent.__iter__() for parent in self._parents], self._strict)

    @property
    def _element_spec(self) -> Any:
        return tuple(parent._element_spec for parent in self._parents)

    def __str__(self) -> str:
        return f"ZipIterDataset([{len(self._parents)} parents], strict={self._strict})"


class ZipDatasetIterator(DatasetIterator[tuple[T, ...]]):
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
        except Exception as error:
            # The tuple is lost as a whole: the datasets behind move on with the others.
            for parent in self._parents[len(elements) + 1 :]:
                with contextlib.suppress(StopIteration, Exception):
                    next(parent)
            keep_user_frames(error)
            raise
        return tuple(elements)

    def _check_all_ended(self, ended: int) -> None:
        """Raise if one ended before the others: `ended` is the first that did."""
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
            raise WrongStateError(f"The state is not one of {self}: it has the parents {states}.")
        for parent, parent_state in zip(self._parents, states, strict=True):
            check_state_of(parent, parent_state)

    def set_state(self, state: State) -> None:
        self.check_state(state)
        for parent, parent_state in zip(self._parents, state["parents"], strict=True):
            parent.set_state(parent_state)

    def close(self) -> None:
        super().close()
        self._parents = tuple(
            parent if isinstance(parent, ClosedIterator) else ClosedIterator(parent)
            for parent in self._parents
        )

    def __str__(self) -> str:
        return f"ZipDatasetIterator([{len(self._parents)} parents], strict={self._strict})"
