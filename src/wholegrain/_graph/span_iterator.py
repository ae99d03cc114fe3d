"""The iterator in a worker that makes spans of a pipeline, for `num_workers="auto"`."""

from __future__ import annotations

import functools
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from wholegrain._core.elements import nbytes
from wholegrain._core.tolerated import Tolerated
from wholegrain._core.types import State, T
from wholegrain._graph.clocked import reading
from wholegrain._graph.iterator import DatasetIterator, go_to_state_of
from wholegrain._graph.nodes.read_ahead import (
    PrefetchDatasetIterator,
    PrefetchIterDataset,
    StackingPrefetchIterator,
)
from wholegrain._read.read_ahead import Read, ReadAhead
from wholegrain._read.read_spans import ReadSpans
from wholegrain._state.counting import CountedStates, read_until

_LARGEST_CHUNK = 1024
_REPORT_EVERY_S = 0.1


class SpanReadIterDataset(PrefetchIterDataset[T]):
    """Reads spans of a MapDataset ahead, and nothing between them."""

    def open(self) -> DatasetIterator[T]:
        kind = StackingSpanReadIterator if self._parent.stacks else SpanReadIterator
        return kind(self)


class _Spans:
    """What a SpanReadIterator knows of its spans.

    Attributes:
        current: The start and stop of the positions to read ahead after the next `set_state`.
        expected: The spans that were announced.
        is_suspect: Whether to read elements one by one, because one of them may kill the worker.
        has_missed: Whether elements were missing, so that there are fewer elements than positions.
    """

    def __init__(self) -> None:
        self.current = (0, 0)
        self.expected: deque[tuple[int, int]] = deque()
        self.is_suspect = False
        self.has_missed = False


class SpanReadIterator(PrefetchDatasetIterator[T]):
    """An iterator over a SpanReadIterDataset."""

    def __init__(self, node: SpanReadIterDataset[T]) -> None:
        super().__init__(node)
        self.spans = _Spans()

    def expect(self, span: tuple[int, int]) -> None:
        """Announce the span that comes after those announced before."""
        self.spans.expected.append(span)
        reader: Any = self._reader
        if reader is not None:
            reader.announce(*span)

    def forget(self) -> None:
        """Forget all announced spans."""
        self.spans.expected.clear()
        self._drop_reader()

    def go_to(self, state: State) -> None:
        self._errors.go_to(state)
        self._length = len(self._dataset)  # A source may have ended early in an earlier span.
        spans = self.spans
        spans.has_missed = False
        if spans.is_suspect:
            self._stand_at(spans.current[0])
            return
        if spans.current in spans.expected:
            # The spans before it were cancelled.
            while spans.expected.popleft() != spans.current:
                pass
        reader: Any = self._reader
        if reader is not None and reader.goes_on_at(*spans.current):
            self._stand_at(spans.current[0])
        else:
            super().go_to(state)

    def _read_chunk(self, start: int) -> Sequence[T | None]:
        # Elements after the span, read because some were missing, are read one by one too.
        if self.spans.is_suspect or start >= self.spans.current[1]:
            return reading(self._dataset, None)(start, start + 1)
        return super()._read_chunk(start)

    def _hold(self, start: int, chunk: Sequence[T | None]) -> None:
        super()._hold(start, chunk)
        self.spans.has_missed |= self._sparse is not None

    def _tolerate(self, found: Tolerated, index: int) -> None:
        self.spans.has_missed = True  # Its state is not the one that is expected.
        super()._tolerate(found, index)

    def _new_reader(self, start: int) -> Any:
        options = self._limits()
        buffer_bytes = self.buffer_bytes

        def read_ahead(read: Read, first: int, last: int) -> ReadAhead[T]:
            return ReadAhead(
                read,
                first,
                last,
                num_threads=options.num_threads if options.prefetch_buffer_size else 0,
                buffer_size=options.prefetch_buffer_size,
                largest_chunk=_LARGEST_CHUNK,
                size_of=nbytes,
                buffer_bytes=buffer_bytes,
            )

        read = reading(self._dataset, self.observed)
        reader: ReadSpans[T] = ReadSpans(read, read_ahead, start, self.spans.current[1])
        for span in self.spans.expected:
            reader.announce(*span)
        self._finalizer = weakref.finalize(self, reader.close)
        return reader


class StackingSpanReadIterator(SpanReadIterator[T], StackingPrefetchIterator[T]):
    """A SpanReadIterator over batches, which can be stacked in the consumer's memory."""


class SpanOver(Exception):
    """Signals to the main process that positions no longer follow from the number of elements."""


class SpanIterator:
    """Makes the elements of one span after the other; `PoolIterator` describes its states.

    Args:
        iterator: The iterator of the whole pipeline.
        reader: The most upstream iterator, which reads the MapDataset.
        states: Computes states from numbers of elements.
        takes_chunks: Whether the worker may call `take` with more than 1.
    """

    def __init__(
        self,
        iterator: DatasetIterator[Any],
        reader: SpanReadIterator[Any],
        states: CountedStates,
        takes_chunks: bool = False,
    ) -> None:
        self.takes_chunks = takes_chunks
        self._iterator = iterator
        self._reader = reader
        self._states = states
        self._start: State = {}
        self._count = 0
        self._made = 0
        self._is_last = False
        self._has_ended = False
        self._is_astray = False  # Whether the state no longer follows from the count.
        self._is_over = False
        self._report_at = 0.0
        self.reports_each_message = getattr(iterator, "reports_each_message", False)

    def __next__(self) -> Any:
        return self._make(self._iterator.__next__)

    def take(self, count: int) -> list[Any]:
        """Return up to `count` of the next elements."""
        count = min(count, self._count - self._made)
        if count < 2:
            return [next(self)]
        elements: list[Any] = self._make(functools.partial(self._take, count))
        self._made += len(elements) - 1
        return elements

    def _take(self, count: int) -> list[Any]:
        elements = self._iterator.take(count)
        if not elements:
            raise StopIteration
        return elements

    def put_back(self, count: int) -> None:
        """Undo the end of the last `take`."""
        self._made -= count
        self._iterator.put_back(count)

    def pass_over(self, count: int) -> None:
        """Move over elements that were put back."""
        self._made += count
        self._iterator.pass_over(count)

    def _make(self, make: Any) -> Any:
        if self._made >= self._count and not self._is_last:
            self._check_end()
            raise StopIteration
        try:
            element = make()
        except StopIteration:
            self._stop()
            self._has_ended = self._is_over = True
            raise SpanOver from None
        except BaseException:
            self._made += 1
            if self._iterator.get_state() != self._states.after(self._start, self._made):
                self._stop()  # A batch has lost rows, so later batches have different rows.
            raise
        self._made += 1
        return element

    def _stop(self) -> None:
        """End the span: later elements are not those that the main process expects."""
        self._is_astray = True
        self._is_last = False
        self._count = 0

    def _check_end(self) -> None:
        """Raise SpanOver if the state is not the one in which the next span starts."""
        if self._count and self._iterator.get_state() != self._states.after(
            self._start, self._count
        ):
            self._stop()
            self._is_over = True
            raise SpanOver

    def get_report(self) -> Any:
        """Return the report of the run, or None if the last one is recent.

        The worker calls this after each span, which takes only some milliseconds.
        """
        now = time.perf_counter()
        if now < self._report_at and not self.reports_each_message:
            return None
        self._report_at = now + _REPORT_EVERY_S
        return self._iterator.get_report()

    def get_state(self) -> Any:
        if not self._is_astray and not self._reader.spans.has_missed:
            return {"next_index": self._made}
        return {
            "state": self._iterator.get_state(),
            "has_ended": self._has_ended,
            "is_over": self._is_over,
        }

    def set_state(self, state: Any) -> None:
        spans = self._reader.spans
        self._start, self._count, self._is_last, spans.is_suspect = state
        self._made = 0
        self._has_ended = self._is_astray = self._is_over = False
        spans.current = self._positions(state)
        # No check: the state was checked in the main process, or computed from a checked one.
        go_to_state_of(self._iterator, self._start)

    def expect(self, state: Any) -> None:
        """Announce a state that `set_state` will be called with; None forgets all of them."""
        if state is None:
            self._reader.forget()
        elif not state[3]:  # Suspect spans are not read ahead, because they may kill the worker.
            self._reader.expect(self._positions(state))

    def _positions(self, state: Any) -> tuple[int, int]:
        start, count = state[:2]
        return read_until(start), read_until(self._states.after(start, count))


class FillingSpanIterator(SpanIterator):
    """A SpanIterator for a pipeline that can write its elements into shared memory."""

    _iterator: Any

    def next_into(self, empty: Any) -> Any:
        """Return the next element, in memory from `empty` if possible."""
        return self._make(functools.partial(self._iterator.next_into, empty))


def reading_spans(dataset: Any) -> Any:
    """Return the same pipeline, reading announced spans of its MapDataset ahead."""
    if type(dataset) is PrefetchIterDataset:
        return SpanReadIterDataset(dataset.parents[0], dataset._read_options, dataset._allow_nones)
    return dataset.with_parents([reading_spans(dataset.parents[0])])
