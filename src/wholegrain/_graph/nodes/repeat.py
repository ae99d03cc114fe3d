"""Repeats a dataset for several epochs."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.origins import Traced
from wholegrain._core.types import IndexT, Indices, State, T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import AnyDataset, IndexTransform, OneParentIterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


def _checked_epochs(method: str, num_epochs: int | None) -> int | None:
    if num_epochs is None:
        return None
    num_epochs = whole_count("num_epochs", num_epochs)
    if num_epochs <= 0:
        raise ValueError(
            f"`{method}` needs at least one epoch, but got num_epochs={num_epochs}."
            " Leave it out to repeat forever."
        )
    return num_epochs


class RepeatMapDataset(IndexTransform[T]):
    """Several epochs of the parent, treated as one."""

    keeps_size = True
    checkpoint = CheckpointSpec(fixed=("reseed",), free=("num_epochs",))

    def __init__(
        self, parent: MapDataset[T], num_epochs: int | None, reseed_each_epoch: bool
    ) -> None:
        super().__init__(parent)
        self._num_epochs = _checked_epochs("repeat", num_epochs)
        self._reseed = reseed_each_epoch
        self._follow_parents()

    def _follow_parents(self) -> None:
        super()._follow_parents()
        self._parent_length = len(self.parent)
        if self._parent_length >= sys.maxsize:
            raise ValueError(
                "`repeat` cannot repeat an infinite dataset: it is repeated already. Take a part"
                " of it first, or leave out one of the repeats."
            )
        if self._num_epochs is not None:
            self._length = self._num_epochs * self._parent_length
        else:
            self._length = sys.maxsize if self._parent_length else 0

    def __len__(self) -> int:
        return self._length

    @property
    def epochs_inside(self) -> int | None:
        """How many epochs it treats as one; None if it is infinite."""
        return self._num_epochs

    def parent_index(self, index: IndexT) -> IndexT:
        if self._reseed:
            return index
        if not self._parent_length:
            raise ZeroDivisionError(f"{self} is empty: there is no element to read.")
        return index % self._parent_length

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return stop if self._reseed else min(stop, self._parent_length)

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        if self._reseed or not self._parent_length:
            return keys[0]
        starts = np.arange(0, stop, self._parent_length)
        return (starts[:, None] + keys[0]).reshape(-1)

    def _label(self) -> str:
        return "repeat" if self._num_epochs is None else f"repeat({self._num_epochs})"

    def __str__(self) -> str:
        return f"RepeatMapDataset(num_epochs={self._num_epochs})"


class RepeatIterDataset(OneParentIterNode[T]):
    """The parent, repeated; each epoch is the same as the first.

    Args:
        parent: The dataset to repeat.
        num_epochs: The number of epochs; infinite by default.
    """

    keeps_size = True
    checkpoint = CheckpointSpec(free=("num_epochs",))

    def __init__(self, parent: AnyDataset[T], num_epochs: int | None = None) -> None:
        super().__init__(parent)
        self._num_epochs = _checked_epochs("RepeatIterDataset", num_epochs)

    @property
    def epochs_inside(self) -> int | None:
        """The number of epochs; None if it is infinite."""
        return self._num_epochs

    def open(self) -> DatasetIterator[T]:
        return RepeatDatasetIterator(self._parent.__iter__(), self._num_epochs)

    def _traced(self, tracer: "Tracer") -> Any:
        return _TracedRepeat(tracer(self._parent), self._num_epochs)

    def _label(self) -> str:
        return "repeat" if self._num_epochs is None else f"repeat({self._num_epochs})"

    def __str__(self) -> str:
        return f"RepeatIterDataset(num_epochs={self._num_epochs})"


class RepeatDatasetIterator(TransformIterator[T]):
    """A position in a RepeatIterDataset. The parent is rewound, not opened again."""

    state_fields = ("epoch",)

    def __init__(self, parent: DatasetIterator[T], num_epochs: int | None) -> None:
        super().__init__(parent)
        self._num_epochs = num_epochs
        self._start: State = parent.get_state()
        self.epoch = 0
        self._any_in_epoch = False

    def __next__(self) -> T:
        while self._num_epochs is None or self.epoch < self._num_epochs:
            try:
                element: T = next(self.parent)
            except StopIteration:
                self._next_epoch()
            else:
                self._any_in_epoch = True
                return element
        self.check_open()
        raise StopIteration

    def take(self, count: int) -> list[T]:
        while self._num_epochs is None or self.epoch < self._num_epochs:
            elements = self.parent.take(count)
            if elements:
                self._any_in_epoch = True
                return elements
            try:
                self._next_epoch()
            except StopIteration:
                break
        self.check_open()
        return []

    def _next_epoch(self) -> None:
        if self._num_epochs is None and not self._any_in_epoch:
            raise StopIteration  # The epoch was empty, and so would all others be.
        self.epoch += 1
        self._any_in_epoch = False
        if self._num_epochs is None or self.epoch < self._num_epochs:
            go_to_state_of(self.parent, self._start)

    def go_to(self, state: State) -> None:
        super().go_to(state)
        # A state in the middle of an epoch implies that the epoch is not empty.
        self._any_in_epoch = True


class _TracedRepeat(RepeatIterDataset[Traced]):
    """Repeats elements that carry their origins."""

    def open(self) -> DatasetIterator[Traced]:
        return _TracedRepeatIterator(self._parent.__iter__(), self._num_epochs)


class _TracedRepeatIterator(RepeatDatasetIterator[Traced]):
    """Adds the epochs of this stage to those of the origins."""

    def __next__(self) -> Traced:
        element = super().__next__()
        if not self.epoch or element is None:
            return element
        origins = [
            dataclasses.replace(one, epoch=one.epoch + self.epoch) for one in element.origins
        ]
        return Traced(element.value, tuple(origins), element.rows)

    def take(self, count: int) -> list[Traced]:
        return DatasetIterator.take(self, count)
