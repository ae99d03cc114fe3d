"""Iterators with a clock around them, which change no element, order or state.

A `TimedIterator` is a link in the chain of iterators. `with_clocks` inserts one between each
iterator and the iterator it reads from, and `without_clocks` removes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wholegrain._core.types import State, T
from wholegrain._graph.iterator import ClosedIterator, DatasetIterator
from wholegrain._observe.clock import Clock
from wholegrain._observe.stage_clock import StageClock


class ForwardingIterator(DatasetIterator[T]):
    """Forwards everything to another iterator."""

    closes_when_dropped = False  # The other iterator closes itself when it is dropped.

    def __init__(self, iterator: DatasetIterator[T]) -> None:
        super().__init__((iterator,))
        self._iterator = iterator

    @property
    def takes_back(self) -> bool:
        return self._iterator.takes_back

    def put_back(self, count: int) -> None:
        self._iterator.put_back(count)

    def pass_over(self, count: int) -> None:
        self._iterator.pass_over(count)

    @property
    def is_within_chunk(self) -> bool:  # type: ignore[override]
        return self._iterator.is_within_chunk

    @property
    def moves_at_end(self) -> bool:
        return self._iterator.moves_at_end

    @property
    def reads_ahead(self) -> bool:
        return self._iterator.reads_ahead

    def get_state(self) -> State:
        return self._iterator.get_state()

    def set_state(self, state: State) -> None:
        self._iterator.set_state(state)

    def check_state(self, state: State) -> None:
        self._iterator.check_state(state)

    def go_to(self, state: State) -> None:
        self._iterator.go_to(state)

    def start_prefetch(self) -> None:
        self._iterator.start_prefetch()

    def close(self) -> None:
        self._iterator.close()

    def _get_next_index(self) -> int:
        return self._iterator._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self._iterator._set_next_index(index)

    def link(self, change: Callable[[Any], Any]) -> None:
        self._iterator = change(self._iterator)
        self._parents = (self._iterator,)

    def get_report(self) -> Any:
        return self._iterator.get_report()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_iterator":
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def __str__(self) -> str:
        return str(self._iterator)


class TimedIterator(ForwardingIterator[T]):
    """An iterator with a clock around it."""

    def __init__(self, iterator: DatasetIterator[T], clock: Clock) -> None:
        super().__init__(iterator)
        self._clock = clock

    def __next__(self) -> T:
        return self._timed(self._iterator.__next__)  # type: ignore[no-any-return]

    def _timed(self, step: Callable[..., Any], *args: Any) -> Any:
        elements: list[T] = []
        started = self._clock.start()
        try:
            elements.append(step(*args))
        finally:
            self._clock.stop(started, elements)
        return elements[0]

    def take(self, count: int) -> list[T]:
        elements: list[T] = []
        started = self._clock.start()
        try:
            elements = self._iterator.take(count)
        finally:
            self._clock.stop(started, elements)
        return elements

    def put_back(self, count: int) -> None:
        self._iterator.put_back(count)
        self._clock.take_back(count)

    def pass_over(self, count: int) -> None:
        self._iterator.pass_over(count)
        self._clock.take_back(-count)


class TimedFillingIterator(TimedIterator[T]):
    """A `TimedIterator` around an iterator that has `next_into`."""

    def next_into(self, empty: Any) -> Any:
        """Return the next element, in memory from `empty` if possible."""
        return self._timed(self._iterator.next_into, empty)  # type: ignore[attr-defined]


def timed_iterator(iterator: DatasetIterator[T], clock: Clock) -> DatasetIterator[T]:
    """Return `iterator` with a clock around it."""
    kind = TimedFillingIterator if hasattr(iterator, "next_into") else TimedIterator
    return kind(iterator, clock)


def with_clocks(iterator: Any) -> Any:
    """Return `iterator` with clocks around it and around all iterators upstream."""
    if not isinstance(iterator, DatasetIterator) or isinstance(
        iterator, (TimedIterator, ClosedIterator)
    ):
        return iterator
    iterator.link(with_clocks)
    if iterator.keeps_time or iterator.observed is None:
        return iterator
    return timed_iterator(iterator, StageClock(iterator.observed, iterator.observed_as))


def without_clocks(iterator: Any) -> Any:
    """Return `iterator` without clocks around it and around the iterators upstream."""
    if isinstance(iterator, TimedIterator):
        iterator = iterator._iterator
    if isinstance(iterator, DatasetIterator):
        iterator.link(without_clocks)
    return iterator


class OutputIterator(ForwardingIterator[T]):
    """The output of a worker: the last stage, with clocks that can be switched on and off."""

    handed_out = 0

    def __next__(self) -> T:
        element = next(self._iterator)
        self.handed_out += 1
        return element

    def set_clocks(self, on: bool) -> None:
        """Put clocks around all stages, or remove them."""
        self.link(with_clocks if on else without_clocks)


class FillingOutputIterator(OutputIterator[T]):
    """An `OutputIterator` whose last stage has `next_into`."""

    def next_into(self, empty: Any) -> Any:
        """Return the next element, in memory from `empty` if possible."""
        element = self._iterator.next_into(empty)  # type: ignore[attr-defined]
        self.handed_out += 1
        return element


def worker_output(iterator: DatasetIterator[T], observed: Any, dataset: Any) -> OutputIterator[T]:
    """Return the output of a worker, and register it as the output of the run."""
    kind = FillingOutputIterator if hasattr(iterator, "next_into") else OutputIterator
    output = kind(iterator)
    output.opened_from = iterator.opened_from
    observed.be_output(output, iterator, dataset)
    return output
