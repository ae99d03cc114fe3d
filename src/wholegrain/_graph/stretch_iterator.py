"""What a worker runs that is given stretches of a pipeline, one after the other."""

from __future__ import annotations

from typing import Any

from wholegrain._core.types import State, T
from wholegrain._engine.read_ahead import ReadAhead
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.nodes.read_ahead import PrefetchDatasetIterator, PrefetchIterDataset
from wholegrain._graph.positions import CountedStates, read_until


class BoundedReadIterDataset(PrefetchIterDataset[T]):
    """A MapDataset in order, not read further ahead than up to a bound."""

    def open(self) -> DatasetIterator[T]:
        return BoundedReadIterator(self._parent, self._read_options, self._allow_nones)


class BoundedReadIterator(PrefetchDatasetIterator[T]):
    """A position in a BoundedReadIterDataset."""

    bound = 0
    has_missed = False
    """Whether elements were missing, so that there are fewer than positions."""

    def _next_chunk(self) -> None:
        if self._end >= self.bound and self._reader is not None:
            self._drop_reader()
        super()._next_chunk()
        self.has_missed = self.has_missed or self._sparse_chunk is not None

    def _new_reader(self, start: int) -> ReadAhead[T]:
        length = self._length
        # What is asked for beyond the bound, where elements were missing, is read one by one.
        self._length = min(length, max(self.bound, start + 1))
        try:
            return super()._new_reader(start)
        finally:
            self._length = length


class StretchOver(Exception):
    """Tells the main process that what it knows of positions does not hold from here on."""


class StretchIterator:
    """The elements of a stretch. Its state to go to is the stretch: where, and how many.

    Args:
        iterator: Of the whole pipeline.
        reader: The iterator at its beginning.
        states: How its states follow from numbers of elements.
    """

    def __init__(
        self,
        iterator: DatasetIterator[Any],
        reader: BoundedReadIterator[Any],
        states: CountedStates,
    ) -> None:
        self._iterator = iterator
        self._reader = reader
        self._states = states
        self._start: State = {}
        self._count = 0
        self._made = 0
        self._is_last = False
        self._has_ended = False
        self._is_astray = False  # Whether the state is not what follows from the count.
        self._is_over = False
        next_into = getattr(iterator, "next_into", None)
        if next_into is not None:
            self.next_into = lambda empty: self._make(lambda: next_into(empty))

    def __next__(self) -> Any:
        return self._make(self._iterator.__next__)

    def _make(self, make: Any) -> Any:
        if self._made >= self._count and not (self._is_last and not self._has_ended):
            self._check_end()
            raise StopIteration
        try:
            element = make()
        except StopIteration:
            self._has_ended = self._is_astray = self._is_over = True
            self._is_last = False
            self._count = 0
            raise StretchOver from None
        except BaseException:
            self._made += 1
            if self._iterator.get_state() != self._states.after(self._start, self._made):
                self._is_astray = True  # Rows of a batch were left out: later ones are others.
                self._is_last = False
                self._count = 0
            raise
        self._made += 1
        return element

    def _check_end(self) -> None:
        """Raise if the state is not the one in which the next stretch starts."""
        if self._count and self._iterator.get_state() != self._states.after(
            self._start, self._count
        ):
            self._count = 0
            self._is_astray = self._is_over = True
            raise StretchOver

    def get_state(self) -> Any:
        if not self._is_astray and not self._reader.has_missed:
            return {"next_index": self._made}
        return {
            "state": self._iterator.get_state(),
            "has_ended": self._has_ended,
            "is_over": self._is_over,
        }

    def set_state(self, state: Any) -> None:
        self._start, self._count, self._is_last = state
        self._made = 0
        self._has_ended = self._is_astray = self._is_over = False
        end = self._states.after(self._start, self._count)
        self._iterator.set_state(self._start)
        self._reader.bound = read_until(end)
        self._reader.has_missed = False
