"""Iterators with a clock around them, which change no element, order or state.

A `TimedIterator` is a link in the chain of iterators. `with_clocks` inserts one between each
iterator and the iterator it reads from, and `without_clocks` removes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from wholegrain._core.types import State, T
from wholegrain._graph.iterator import ClosedIterator, DatasetIterator
from wholegrain._observe.clock import Clock, timed_call, timed_read
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
        self.opened_from = iterator.opened_from
        self.observed, self.observed_as = iterator.observed, iterator.observed_as

    def __next__(self) -> T:
        return timed_call(self._clock, self._iterator.__next__)  # type: ignore[no-any-return]

    @property
    def next_into(self) -> Callable[[Any], T]:
        """Returns the next element, in memory from its argument; only if the iterator has it."""
        return functools.partial(timed_call, self._clock, self._iterator.next_into)  # type: ignore[attr-defined]

    def take(self, count: int) -> list[T]:
        return timed_read(self._clock, self._iterator.take, count)  # type: ignore[no-any-return]

    def put_back(self, count: int) -> None:
        self._iterator.put_back(count)
        self._clock.take_back(count)

    def pass_over(self, count: int) -> None:
        self._iterator.pass_over(count)
        self._clock.take_back(-count)


def with_clocks(iterator: Any) -> Any:
    """Return `iterator` with clocks around it and around all iterators upstream."""
    if not isinstance(iterator, DatasetIterator) or isinstance(iterator, ClosedIterator):
        return iterator
    if isinstance(iterator, TimedIterator):
        iterator._iterator.link(with_clocks)  # It may have opened other iterators meanwhile.
        return iterator
    iterator.link(with_clocks)
    clock = None if iterator.observed is None else _clock_of(iterator)
    return iterator if clock is None else TimedIterator(iterator, clock)


def _clock_of(iterator: DatasetIterator[Any]) -> Clock | None:
    """Return a new clock for an iterator; None if it needs none."""
    observed = iterator.observed
    if observed.aims is None:
        return None if iterator.keeps_time else StageClock(observed, iterator.observed_as)
    from wholegrain._observe.tracked_clock import clock_of_iterator  # Rarely used.

    return clock_of_iterator(observed, iterator)


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

    takes_chunks = False
    """Whether the worker may call `take` with more than 1."""

    reports_each_message = False
    """Whether the worker sends a report with each message, so that reports are current."""

    def __next__(self) -> T:
        element = self._iterator.__next__()
        self.handed_out += 1
        return element

    @property
    def next_into(self) -> Callable[[Any], T]:
        """Returns the next element, in memory from its argument; only if the iterator has it."""
        self._iterator.next_into  # type: ignore[attr-defined]  # noqa: B018
        return self._next_into

    def _next_into(self, empty: Any) -> T:
        # Looked up at each call: a worker keeps this method, while clocks come and go.
        element: T = self._iterator.next_into(empty)  # type: ignore[attr-defined]
        self.handed_out += 1
        return element

    def take(self, count: int) -> list[T]:
        elements = self._iterator.take(count)
        self.handed_out += len(elements)
        return elements

    def set_clocks(self, on: bool) -> None:
        """Put clocks around all stages, or remove them."""
        self.link(with_clocks if on else without_clocks)


def worker_output(iterator: DatasetIterator[T], observed: Any, dataset: Any) -> OutputIterator[T]:
    """Return the output of a worker, and register it as the output of the run."""
    output = OutputIterator(iterator)
    output.opened_from = iterator.opened_from
    observed.be_output(output, iterator, dataset)
    observed.ids.ahead |= {"", "0"}  # The consumer of its elements is a stage with workers.
    if observed.aims is not None:
        output.reports_each_message = True
        if observed.aims.profile_workers:
            from wholegrain._observe import profiler

            profiler.serve()
    return output
