"""Stages with a clock around them. They change no element, no order and no state."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core import events, tree
from wholegrain._core.elements import describe, nbytes
from wholegrain._core.log import logger
from wholegrain._core.types import Indices, NDArray, State, T
from wholegrain._graph import run
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import IterNode, MapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe.board import Board
from wholegrain.record import Record

Listener = Callable[[int, Sequence[Any]], None]
Started = tuple[int, int, Any]

_KNOWN_SIZES = (str, bytes, bytearray, int, float, complex, type(None))


class _Inner(threading.local):
    """How long the stages took that the current one has called, in this thread."""

    nanoseconds = 0


_inner = _Inner()


class Clock:
    """Measures one stage, without those that it calls.

    Args:
        board: Where the times go.
        row: The place of the stage there.
        counts_bytes: Whether the sizes of its elements are wanted.
        listeners: Called with how long it took to get some elements, and those.
        event: What to call the stage in a trace, its name, and of what category it is.
    """

    def __init__(
        self,
        board: Board,
        row: int,
        counts_bytes: bool,
        listeners: Sequence[Listener] = (),
        event: tuple[str, str, str] | None = None,
    ) -> None:
        self._board = board
        self._row = row
        self._counts_bytes = counts_bytes
        self._listeners = listeners
        self._event = event
        self._is_described = False

    def start(self) -> Started:
        """Begin: what it returns is for `stop`."""
        before, _inner.nanoseconds = _inner.nanoseconds, 0
        event = None
        if self._event is not None:
            name, stage, category = self._event
            event = events.begin(name, stage, self._row, category)
        return before, time.perf_counter_ns(), event

    def stop(self, started: Started, elements: Sequence[Any]) -> None:
        """Count what came of it."""
        before, begin, event = started
        events.end(event)
        elapsed = time.perf_counter_ns() - begin
        own = elapsed - _inner.nanoseconds
        size = sum(map(_size, elements)) if self._counts_bytes else 0
        self._board.record(self._row, max(0, own), len(elements), size)
        if not self._is_described:
            self._describe(elements)
        for listener in self._listeners:
            listener(elapsed, elements)
        # To the stage that called this one, all of it was this one.
        _inner.nanoseconds = before + time.perf_counter_ns() - begin

    def take_back(self, count: int) -> None:
        """Count elements as not made: they will be made again."""
        self._board.take_back(self._row, count)

    def _describe(self, elements: Sequence[Any]) -> None:
        for element in elements:
            if element is not None:
                self._is_described = True
                if self._counts_bytes:
                    _warn_of_unknown_sizes(element)
                self._board.describe(self._row, repr(describe(element)))
                return


def data_of(element: Any) -> Any:
    """Return what an element of a loader's pipeline carries."""
    return element.data if isinstance(element, Record) else element


def _size(element: Any) -> int:
    return nbytes(data_of(element))


def _warn_of_unknown_sizes(element: Any) -> None:
    """Say once that an element holds something whose size cannot be told."""
    for leaf in tree.leaves(data_of(element)):
        if not hasattr(leaf, "nbytes") and not isinstance(leaf, _KNOWN_SIZES):
            _warn_of_type(type(leaf).__name__)


@functools.cache
def _warn_of_type(name: str) -> None:
    if _warn_of_type.cache_info().currsize == 0:
        logger().warning(
            "The memory that an element of type %s takes cannot be estimated: `memory usage` in"
            " the execution summary leaves it out.",
            name,
        )


class TimedMapDataset(MapNode[T]):
    """A dataset with a clock around it. As it stands between two, their functions do not fuse."""

    only_prefetches = True  # Seeds follow from distances: this is no stage.

    def __init__(self, dataset: MapDataset[T], clock: Clock) -> None:
        super().__init__(dataset)
        self._timed = dataset
        self._clock = clock

    def __len__(self) -> int:
        return len(self._timed)

    # The index is not called so: errors say in which stage they happened by that name.

    def getitem(self, at: int) -> T | None:
        elements: list[T | None] = []
        started = self._clock.start()
        try:
            elements.append(self._timed.getitem(at))
        finally:
            self._clock.stop(started, elements)
        return elements[0]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        elements: Sequence[T | None] = ()
        started = self._clock.start()
        try:
            elements = self._timed.getitems(indices)
        finally:
            self._clock.stop(started, elements)
        return elements

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        rows: NDArray[Any] | None = None
        started = self._clock.start()
        try:
            rows = self._timed.gather(indices)
        finally:
            self._clock.stop(started, () if rows is None else list(rows))
        return rows

    @property
    def sparse(self) -> bool:
        return self._timed.sparse

    def source_index(self, index: int) -> int:
        return self._timed.source_index(index)

    @property
    def _element_spec(self) -> Any:
        return self._timed._element_spec

    def __str__(self) -> str:
        return str(self._timed)


class ForwardingIterator(DatasetIterator[T]):
    """Does what another iterator does."""

    closes_when_dropped = False  # With it goes its hold on the other one.

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
    """One that can make elements in memory that it is given."""

    def next_into(self, empty: Any) -> Any:
        """Return the next element in memory that `empty` gives, where it can."""
        return self._timed(self._iterator.next_into, empty)  # type: ignore[attr-defined]


def timed_iterator(iterator: DatasetIterator[T], clock: Clock) -> DatasetIterator[T]:
    """Return an iterator with a clock around it."""
    kind = TimedFillingIterator if hasattr(iterator, "next_into") else TimedIterator
    return kind(iterator, clock)


class UserIterDataset(IterNode[T]):
    """Stands for an IterDataset of the user's, whose iterators are to be timed."""

    only_prefetches = True

    def __init__(self, dataset: Any) -> None:
        super().__init__((dataset,))
        self.dataset = dataset

    def __iter__(self) -> DatasetIterator[T]:
        watch = run.current().watch
        return self.open() if watch is None else watch.open(self)

    def open(self) -> DatasetIterator[T]:
        return self.dataset.__iter__()  # type: ignore[no-any-return]

    @property
    def _element_spec(self) -> Any:
        return self.dataset._element_spec

    def __str__(self) -> str:
        return str(self.dataset)
