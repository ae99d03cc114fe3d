"""Reads a random-access dataset in order, ahead of the consumer."""

from __future__ import annotations

import operator
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from wholegrain._core import events
from wholegrain._core.elements import nbytes
from wholegrain._core.failure import Failure, PartlyFailed
from wholegrain._core.stack import Empty
from wholegrain._core.tolerated import Tolerated, tolerated
from wholegrain._core.types import State, T
from wholegrain._graph import run
from wholegrain._graph.clocked import reading, tracked
from wholegrain._graph.drop_watch import DropWatch
from wholegrain._graph.iterator import DatasetIterator, StageIterator, closed_error
from wholegrain._graph.kinds import IterNode, add_read_note
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.reader_limits import shared_by, with_smaller_buffer
from wholegrain._graph.tolerance import Counts, keeps_places
from wholegrain._graph.uneven_chunks import FailedChunk, SparseChunk
from wholegrain._observe import outline
from wholegrain._observe.clock import timer
from wholegrain._observe.sampler import ALWAYS
from wholegrain._observe.shown import READERS
from wholegrain._read import machine
from wholegrain._read.read_ahead import ReadAhead
from wholegrain._state import workers
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import WrongStateError, index_of, list_of, shortened
from wholegrain.options import ReadOptions, plain_read_options, tuned_read_options

# How much memory the elements read ahead may take: in one process, and in all workers together.
# Workers get less because each of them already runs ahead of the consumer.
_BUFFER_BYTES, _BUFFER_BYTES_OF_WORKERS = 64 << 20, 8 << 20
# Larger chunks make reads in the consumer's own thread no cheaper per element.
_LARGEST_CHUNK = 1024
# A mixture of many datasets asks for larger chunks, but gets no larger ones than this.
_LARGEST_HINT = 1 << 16


class PrefetchIterDataset(IterNode[T]):
    """One epoch of a MapDataset, in order."""

    keeps_size = True
    runs_ahead = READERS
    only_chooses = True
    checkpoint = CheckpointSpec(free=("read_options", "allow_nones"))
    is_bridge = True  # `iter(map_dataset)` creates a new one each time.

    def __init__(
        self, parent: MapDataset[T], read_options: ReadOptions, allow_nones: bool = False
    ) -> None:
        super().__init__((parent,))
        self._read_options = read_options
        self._allow_nones = allow_nones

    @property
    def gives_all(self) -> bool:
        """Whether there is an element at every index."""
        return self._allow_nones or not self._parent.sparse

    @property
    def keeps_places(self) -> bool:
        """Whether every index has its place in the stream: an element, or one that failed."""
        return self.gives_all or keeps_places(self._parent)

    def open(self) -> DatasetIterator[T]:
        kind = StackingPrefetchIterator if self._parent.stacks else PrefetchDatasetIterator
        return kind(self)

    @property
    def _element_spec(self) -> Any:
        return self._parent._element_spec

    def _label(self) -> str:
        return "to_iter_dataset"

    def _about(self, name: str) -> str:
        options, parent = plain_read_options(self._read_options), self._parent
        gaps = "" if self.gives_all else " Missing elements are skipped."
        how = "The thread that calls `next` reads them, in chunks of about a millisecond."
        if threads := options.num_threads if options.prefetch_buffer_size else 0:
            how = (
                "The thread that calls `next` reads them while that is fast. If reads block or"
                f" compute for long, up to {threads} threads read up to"
                f" {options.prefetch_buffer_size} elements ahead."
            )
        infinite, count = outline.is_infinite(parent), outline.length_text(parent)
        what = "an infinite number of" if infinite else count
        return f"{name} reads {what} indices in order.{gaps} {how}"

    def __str__(self) -> str:
        nones = self._allow_nones
        return f"PrefetchIterDataset(read_options={self._read_options}, allow_nones={nones})"


class PrefetchDatasetIterator(StageIterator[T]):
    """A position in a MapDataset: the next index to return.

    It holds one chunk of elements at a time. Missing elements are removed when a chunk arrives. The
    indices of the other elements are computed only when the position is requested.
    """

    closes_when_dropped = False
    keeps_time = True

    def __init__(self, node: PrefetchIterDataset[T]) -> None:
        super().__init__()
        (dataset,) = node.parents
        self._node = node
        self._context = context = run.current()
        self._dataset = tracked(dataset, context.observed)
        self._length = len(dataset)
        self._watch = DropWatch(self, context.options)
        self._watch.errors = Counts(context.account)
        self._closed = False
        self._reader: ReadAhead[T] | None = None
        self._stand_at(0)

    def _stand_at(self, index: int) -> None:
        self._elements: Sequence[T] = ()
        self._cursor = 0
        self._end = index  # The index after the last element of the chunk.
        self._sparse: SparseChunk | None = None  # The chunk, if elements of it are missing.
        self._failed: FailedChunk | None = None  # A chunk with Failures, until it is used up.

    @property
    def _errors(self) -> Counts:
        """The failures that were tolerated before this position."""
        return self._watch.errors  # type: ignore[no-any-return]

    # Elements.

    def __next__(self) -> T:
        cursor = self._cursor
        if cursor < len(self._elements):
            self._cursor = cursor + 1
            return self._elements[cursor]
        for element in self.take(1):
            return element
        raise StopIteration

    def take(self, count: int) -> list[T]:
        while self._cursor >= len(self._elements):  # A chunk may turn out to be empty.
            if self._closed:
                raise closed_error()
            start = self._end
            self._elements, self._cursor, self._sparse = (), 0, None
            if self._failed is not None:
                if self._go_on(self._failed, start):
                    continue
                self._failed = None
            if start >= self._length:
                self.catch_up()
                return []
            chunk = self._read_chunk(start)
            if type(chunk) is PartlyFailed:
                self._failed = FailedChunk(chunk, start)
                self._go_on(self._failed, start)
            else:
                self._hold(start, chunk)
        cursor = self._cursor
        elements = self._elements[cursor : cursor + count]
        self._cursor = cursor + len(elements)
        return elements  # type: ignore[return-value]

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        self._cursor -= count

    def pass_over(self, count: int) -> None:
        self._cursor += count

    @property
    def moves_at_end(self) -> bool:
        return (
            not self._node._allow_nones
        )  # It may move over missing elements: any map can drop some.

    @property
    def reads_ahead(self) -> bool:
        options = plain_read_options(self._node._read_options)
        return bool(options.num_threads and options.prefetch_buffer_size)

    def _read_chunk(self, start: int) -> Sequence[T | None]:
        """Read the next chunk, or take one that threads have read ahead."""
        reader, observed = self._reader, self.observed
        if reader is None:
            reader = self._reader = self._new_reader(start)
        event = events.begin_wait("PrefetchDatasetIterator._next_chunk", self)
        try:
            if observed is None or (reader.unwatched and not observed.clocks_on):
                return reader.next_chunk()[1]
            return self._next_observed(reader)[1]  # type: ignore[no-any-return]
        finally:
            events.end(event)

    def _go_on(self, failed: FailedChunk, start: int) -> bool:
        """Continue in a chunk with Failures: raise one, or hold the elements before the next.

        Return False at the end of the chunk.
        """
        chunk = failed.chunk
        if chunk.raised_before:
            error, *chunk.raised_before = chunk.raised_before
            try:
                raise error
            finally:
                del error  # Its traceback refers to this frame: break the cycle.
        offset = start - failed.base
        if offset >= len(chunk):
            return False
        stop = chunk.next_failure(offset)
        if stop > offset:
            self._hold(start, list(chunk[offset:stop]))
        elif (found := tolerated(chunk[offset])) is not None:
            self._tolerate(found, start)
        else:
            self._end = start + 1
            self._raise(chunk[offset], start)
        return True

    def _tolerate(self, found: Tolerated, index: int) -> None:
        """Move past a failure that `on_error` tolerates, or to the element that replaces it."""
        self._end = index + 1
        is_there = found.element is not None or self._node._allow_nones
        self._elements = [found.element] if is_there else ()
        self._errors.tolerate(found)

    def _raise(self, failure: Failure, index: int) -> None:
        """Raise the error that was recorded for an element."""
        error = failure.error.with_traceback(failure.traceback)
        try:
            stage = failure.stage and add_read_note(error, self._dataset, index, failure)
            if isinstance(error, StopIteration):
                # A source may raise it to end the data; a function must not.
                if stage.parents:
                    text = f"{stage} raised StopIteration at element {index}."
                    raise RuntimeError(text) from error
                self._drop_reader()
                self._stand_at(index)
                self._length = index
            raise error
        finally:
            del error, failure  # Their traceback refers to this frame: break the cycle.

    def _next_observed(self, reader: ReadAhead[T]) -> tuple[int, Any]:
        """Get the next chunk, and measure how long that takes."""
        observed = self.observed
        is_slow = observed.sampler.mode == ALWAYS
        if is_slow and reader.unwatched and not timer.deep:  # `catch_up` adds this time later.
            before = reader.unseen_seconds
            got = reader.next_chunk()
            timer.exclude(reader.unseen_seconds - before)
            return got
        self.catch_up()
        reader.unwatched, reads = False, reader.reads_here
        if is_slow and timer.deep:
            with observed.waiting(self, reads=reads):
                return reader.next_chunk()
        began = time.perf_counter()
        got = reader.next_chunk()
        observed.got(self, began, reads)
        return got

    def catch_up(self) -> None:
        reader = self._reader
        if reader is not None and self.observed is not None and reader.unseen_elements:
            self.observed.read_unseen(self, self._dataset, reader)

    def _hold(self, start: int, chunk: Sequence[T | None]) -> None:
        """Make a chunk, without its missing elements, the current one."""
        self._errors.good = True
        self._end = start + len(chunk)
        if self._node._allow_nones:
            self._elements = chunk  # type: ignore[assignment]
            return
        kept = [element for element in chunk if element is not None]
        watch = self._watch
        if len(chunk) < watch.left_in_window:
            watch.see(len(chunk), len(chunk) - len(kept))
        elif len(kept) == len(chunk) and not watch.raises:
            watch.see_kept(len(chunk))
        else:
            chunk = self._watched(chunk, start)
            kept = [element for element in chunk if element is not None]
        if len(kept) < len(chunk):
            self._sparse = SparseChunk(chunk, start)
            chunk = kept
        self._elements = chunk  # type: ignore[assignment]

    def _watched(self, chunk: Sequence[T | None], start: int) -> Sequence[T | None]:
        """Return the part of a chunk before the element at which too many were dropped."""
        error, count = self._watch.see_each(chunk)
        if error is None:
            return chunk
        if self._failed is None:
            self._failed = FailedChunk(PartlyFailed(chunk), start)
        # Record the error at the position of the last element that was counted.
        self._end = start + count - 1
        self._failed.chunk[self._end - self._failed.base] = Failure(error.with_traceback(None))
        return chunk[: count - 1]

    # Reading.

    @property
    def buffer_bytes(self) -> int:
        """How much memory elements may take that are read ahead."""
        count = self._context.worker_count
        whole = _BUFFER_BYTES if count == 1 else _BUFFER_BYTES_OF_WORKERS // count
        shared = self._context.shared_readers
        return whole if shared is None else whole // shared.parts

    def _new_reader(self, start: int) -> ReadAhead[T]:
        read, read_plainly = [reading(self._dataset, way) for way in (self.observed, None)]
        options, count = self._limits(), self._context.worker_count
        shared = self._context.shared_readers
        reader: ReadAhead[T] = ReadAhead(
            read,
            start,
            self._length,
            num_threads=options.num_threads if options.prefetch_buffer_size else 0,
            buffer_size=options.prefetch_buffer_size,
            largest_chunk=_LARGEST_CHUNK,
            size_of=nbytes,
            buffer_bytes=self.buffer_bytes,
            is_crowded=count > 1 and 2 * count > machine.available_cpus(),
            read_unwatched=read_plainly,
            chunk_hint=min(self._dataset.chunk_hint, _LARGEST_HINT),
            shared_threads=None if shared is None else shared.threads,
        )
        reader.take_turns(self._context.lanes_here)
        for parameter in tuned_read_options(self._node._read_options).values():
            parameter.follow(self._follow_limits)
        # The reader's threads must not keep this iterator alive, nor outlive it.
        self._finalizer = weakref.finalize(self, reader.close)
        return reader

    def _limits(self) -> ReadOptions:
        shared = self._context.shared_readers
        parts = 1 if shared is None else shared.parts
        options = with_smaller_buffer(plain_read_options(self._node._read_options), parts)
        return shared_by(options, self._context.lanes_here)

    def _follow_limits(self) -> None:
        """Pass changed parameters on to the reader."""
        if self._reader is not None:
            limits = self._limits()
            self._reader.set_limits(limits.num_threads, limits.prefetch_buffer_size)

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if self._reader is None and self._end < self._length:
            self._reader = self._new_reader(self._end)
            self._reader.start()

    @property
    def buffer_size(self) -> int:
        """How many elements may be available without waiting."""
        return int(self._node._read_options.prefetch_buffer_size)

    @property
    def ready_count(self) -> int:
        """How many elements are available without waiting."""
        ahead = 0 if self._reader is None else self._reader.ready_count
        return len(self._elements) - self._cursor + ahead

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self.catch_up()
            # Close first: an interruption after `detach` would leave its threads without an owner.
            self._reader.close()
            self._finalizer.detach()
            self._reader = None

    def close(self) -> None:
        # If the first call was interrupted, a second one repeats everything.
        index = self._next_index()
        self._closed = True
        self._drop_reader()
        self._stand_at(index)

    def progress(self) -> Any:
        return self._end, self._cursor

    @property
    def is_within_chunk(self) -> bool:  # type: ignore[override]
        return self._cursor > 0

    # The position.

    def _next_index(self) -> int:
        if self._sparse is None:
            return self._end - len(self._elements) + self._cursor
        return self._sparse.next_index(self._cursor)

    def get_state(self) -> State:
        return self._errors.added_to({"next_index": self._next_index()})

    def go_to(self, state: State) -> None:
        self._drop_reader()
        self._errors.go_to(given := workers.join(state))
        self._stand_at(operator.index(given["next_index"]))

    def check_state(self, state: State) -> None:
        given: Any = workers.join(state)
        if isinstance(given, Mapping) and "iterators_in_use_states" in given:
            count = len(list_of(given, "iterators_in_use_states", self))
            raise WrongStateError(
                f"The state was taken with {count} workers, which have not together read a"
                " contiguous beginning of the data, so there is no equivalent position without"
                " workers. Restore it with the same number of workers."
            )
        self._errors.check(given, self)
        index = index_of(given, "next_index", self)
        if not 0 <= index <= self._length:
            raise WrongStateError(
                f"Cannot go to the element at {shortened(index)}: the dataset has {self._length}."
                " Was the state taken from another dataset?"
            )

    def _get_next_index(self) -> int:
        if self._dataset.sparse and not self._node._allow_nones:
            raise NotImplementedError(
                "After a `filter` or a flat map on a MapDataset, the number of elements produced"
                " does not follow from the position."
            )
        return self._next_index()

    def _set_next_index(self, index: int) -> None:
        self.set_state({"next_index": index})

    def __str__(self) -> str:
        options, nones = self._node._read_options, self._node._allow_nones
        return f"PrefetchDatasetIterator(read_options={options}, allow_nones={nones})"


class StackingPrefetchIterator(PrefetchDatasetIterator[T]):
    """A PrefetchDatasetIterator over batches, which can be stacked in the consumer's memory."""

    def next_into(self, empty: Empty) -> T:
        """Return the next batch, in memory from `empty` if it is read here and now."""
        reader = self._reader
        if reader is None:  # The first one is measured.
            return next(self)
        reader.empty = empty
        try:
            return next(self)
        finally:
            reader.empty = None
