"""Reads chunks of elements ahead of the consumer, in order, with as many threads as help.

    consumer: next_chunk()            readers: claim the next chunk, read it, store it on its ticket
        |                                 |
        |  takes the head when done       |  no further ahead than the buffer allows
        v                                 v
    [ chunk 7: done ][ chunk 8: being read ][ chunk 9: done ][ chunk 10: being read ] ...

The cost of a read decides which thread does it. The wall time and the CPU time of a chunk are
measured:

- Quick reads (a whole chunk in about a millisecond of CPU time) are done by the consumer itself,
  in large chunks: a thread would only add the hand-over.
- Slow reads that compute run on one thread, or on more if that is measured to be faster, as for
  native code that releases the GIL.
- Reads that wait, for a disk or a network, run on as many threads as allowed, in small chunks.

The order and the position never depend on any of this.

An element that cannot be read is a Failure in its chunk. If a read nevertheless raises, the
consumer receives the exception once, and then reads that chunk again itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic

from wholegrain._core.failure import record_all
from wholegrain._core.types import T
from wholegrain._read import forks
from wholegrain._read.caution import is_careful
from wholegrain._read.chunk_queue import UNREAD, ChunkQueue, Ticket
from wholegrain._read.chunk_size import CHUNK_SECONDS, ChunkSizes, ThreadChunks, computed_in
from wholegrain._read.cost import Cost, timed
from wholegrain._read.cost import Read as Read
from wholegrain._read.handover import Handover
from wholegrain._read.own_reads import OwnReads
from wholegrain._read.reader_count import ReaderCount
from wholegrain._read.reader_name import as_first_reader
from wholegrain._read.reader_threads import ReaderThreads
from wholegrain._read.shared_threads import SharedThreads
from wholegrain._read.shutdown import stop_at_exit


class ReadAhead(Generic[T]):
    """Reads `start..stop` in chunks, in order, ahead of the consumer.

    Args:
        read: Reads the elements from one position up to another; called from several threads.
        start: The first position.
        stop: The position after the last.
        num_threads: How many threads may read at once; 0 for none.
        buffer_size: How many elements may be ready or being read.
        largest_chunk: The largest number of elements in a chunk.
        size_of: Estimates the size of an element in bytes.
        buffer_bytes: How much memory elements may use that are ready or being read. Whatever their
            size, one may be ready and one being read, or two per thread if reads wait.
        is_crowded: Whether other processes keep all CPUs busy. The consumer then reads large
            elements itself if they only have to be computed.
        read_unwatched: Reads without measurements; `read` by default.
        chunk_hint: The number of elements that a chunk should have at least, even if that takes
            longer, because smaller chunks cost more per element.
        shared_threads: Threads that several readers share; by default each has its own.

    Attributes:
        unwatched: Whether the consumer's next read takes only the wall clock.
        unseen_seconds: The time of such reads, since a reader of this attribute set it to 0.
        unseen_elements: How many elements such reads returned.
        unseen_until: When the last of them ended.
        empty: Passed to `read` when the consumer reads a single large element. The consumer sets it
            to a function that allocates arrays, where the element should be.
    """

    def __init__(
        self,
        read: Read,
        start: int,
        stop: int,
        *,
        num_threads: int,
        buffer_size: int,
        largest_chunk: int,
        size_of: Callable[[Any], int],
        buffer_bytes: int = 64 << 20,
        is_crowded: bool = False,
        read_unwatched: Read | None = None,
        chunk_hint: int = 1,
        shared_threads: SharedThreads | None = None,
    ) -> None:
        most_threads = min(num_threads, buffer_size)
        as_named = as_first_reader if most_threads else _as_it_is
        sizes = ChunkSizes(largest_chunk, chunk_hint, size_of, buffer_bytes)
        self._largest = largest_chunk
        self._read = read
        self._own = OwnReads(as_named(read), as_named(read_unwatched or read), sizes)
        self._quick = True  # Whether the consumer reads by itself.
        self.unwatched = False
        self.empty: Callable[..., Any] | None = None
        self.unseen_seconds, self.unseen_until, self.unseen_elements = 0.0, 0.0, 0
        self._chunks = ThreadChunks(largest_chunk, buffer_size, size_of, buffer_bytes)
        self._handover = Handover(self._chunks.largest, size_of, is_crowded=is_crowded)
        # Guarded by the lock of the threads from here on.
        self._threads = ReaderThreads(most_threads, shared_threads)
        self._count = ReaderCount(most_threads)
        self._queue = ChunkQueue(start, stop)

    def take_turns(self, readers: int) -> None:
        """Adapt to several readers that take turns."""
        self._own.take_turns(readers)

    def set_limits(self, num_threads: int, buffer_size: int) -> None:
        """Change how many threads may read at once, and how many elements may be ahead."""
        with self._threads.lock:
            most = min(num_threads, buffer_size)
            if not self._threads.most or not most:
                return  # There are no threads, and never will be.
            self._threads.most = most
            self._count.set_most(most)
            self._chunks.set_buffer_size(self._largest, buffer_size)
            if not self._quick:
                self._employ()
            self._threads.room.notify_all()

    # The consumer's side.

    def next_chunk(self) -> tuple[int, Sequence[T]]:
        """Return the position after the next chunk, and the chunk."""
        own, queue = self._own, self._queue
        if not self._quick or queue.tickets:
            return self._next_of_threads()
        if not self.unwatched:
            return self._read_here()
        # With the wall clock alone: the other clocks cost as much as some reads.
        start, stop, into = self._next_read()
        began = time.perf_counter()
        try:
            chunk = own.read_unwatched(start, stop, *into)
        except BaseException:
            self._note_interrupted()
            raise
        self.unseen_until = ended = time.perf_counter()
        self.unseen_seconds += ended - began
        self.unseen_elements += stop - start
        self.unwatched = own.stays_unwatched(began, ended)
        queue.pass_over(stop)
        return stop, chunk

    def _next_of_threads(self) -> tuple[int, Sequence[T]]:
        """Return the next chunk that a thread reads, unless there are none left to do so."""
        queue = self._queue
        with self._threads.lock:
            if not queue.has_ready_chunk:
                self._wait()
            self._threads.check_open()
            ticket = queue.head
            if ticket is not None:
                error = ticket.take_error()
                if error is not None:
                    try:
                        raise error
                    finally:
                        del error  # Avoids a reference cycle: its traceback refers to this frame.
                if ticket.chunk is not UNREAD:
                    return self._hand_out()
        if ticket is None:
            return self._read_here()
        ticket.chunk = self._own.read(queue.taken, ticket.stop)
        with self._threads.lock:
            return self._hand_out()

    def _hand_out(self) -> tuple[int, Any]:
        """Return the first chunk to the consumer. Called with the lock held."""
        handed_out = self._queue.hand_out()
        if self._threads.are_shared and not self._quick:
            self._employ()  # Threads that had no room to read into have ended.
        else:
            self._threads.room.notify()
        return handed_out

    def _wait(self) -> None:
        """Wait for the next chunk, unless the consumer has to read it. Needs the lock."""
        if not self._quick:
            self._employ()
        if (self._quick or is_careful()) and not self._queue.tickets:
            return
        self._count.starved()
        while not self._threads.is_closed and not self._queue.has_ready_chunk:
            self._threads.ready.wait()

    @property
    def reads_here(self) -> bool:
        """Whether the consumer currently reads by itself."""
        return self._quick

    @property
    def ready_count(self) -> int:
        """How many of the next elements have been read."""
        with self._threads.lock:
            return self._queue.ready_count

    def start(self) -> None:
        """Begin to read in the background."""
        if self._threads.most and self._queue.has_unclaimed:
            with self._threads.lock:
                self._quick = False
                self._employ()

    def extend(self, stop: int) -> None:
        """Continue reading up to a later position."""
        with self._threads.lock:
            self._queue.stop = stop
            if not self._quick:
                self._employ()
            self._threads.room.notify_all()

    def close(self) -> None:
        """End the threads, without waiting for those in the middle of a read."""
        self._threads.close()

    def _next_read(self) -> tuple[int, int, tuple[Any, ...]]:
        """Return where the consumer's next read begins and ends, and where to put the element."""
        own, queue = self._own, self._queue
        alone = is_careful() or (self.empty is not None and own.has_large)
        start = queue.next_start
        stop = min(start + (1 if alone else own.size), queue.stop)
        into = (self.empty,) if self.empty is not None and stop - start == 1 else ()
        return start, stop, into

    def _note_interrupted(self) -> None:
        """Prepare for another interruption of the consumer at the same element.

        The elements before it should be returned first.
        """
        self._own.size, self.unwatched = 1, False

    def _read_here(self) -> tuple[int, Sequence[T]]:
        own, queue, careful = self._own, self._queue, is_careful()
        start, stop, into = self._next_read()
        try:
            # This costs as much as some reads, so use it only if threads may soon take over.
            exact = self._threads.most > 0 and (self._handover.is_likely or not own.count)
            chunk, cost = timed(own.read, start, stop, *into, exact=exact)
        except BaseException:
            self._note_interrupted()
            raise
        queue.pass_over(stop)
        is_first = not own.count
        own.note(cost, chunk, slow=self._handover.is_likely)
        if self._threads.most and not careful:
            rate = self._handover.consider(cost, chunk, stop, is_first=is_first)
            if rate is not None:
                self._hand_over(cost, chunk, rate)
        if self._quick and not self._handover.is_likely:
            self.unwatched = own.may_go_unwatched(cost, cost.count)
        return stop, chunk

    def _hand_over(self, cost: Cost, chunk: Sequence[Any], rate: float) -> None:
        """Let threads read from now on. `rate` is the consumer's rate, or 0 if unknown."""
        with self._threads.lock:
            self._quick = False
            self._count.begin(waiting=cost.waited, rate_here=rate)
            self._adapt_chunks(cost, chunk)
            self._employ()

    # The readers' side. Everything but `_work` is called with the lock held.

    def _employ(self) -> None:
        """Start the wanted threads that are not running yet."""
        if is_careful():
            return
        if self._threads.start(self._count.wanted, self._work):
            stop_at_exit(self, ReadAhead.close)
            forks.call_in_child(self, ReadAhead._leave_to_parent)
        elif not self._threads.most:
            self._quick = True

    def _leave_to_parent(self) -> None:
        """Stop in a forked child, which does not have the threads."""
        if self._threads.leave_to_parent(has_chunks=bool(self._queue.tickets)):
            self._quick = False
            self._queue.tickets.clear()

    def _work(self, number: int) -> None:
        record_all()
        with self._threads.lock:
            start, ticket = self._claim(number)
        while ticket is not None:
            cost = None
            try:
                computes = not self._count.waiting
                chunk, cost = timed(self._read, start, ticket.stop, exact=computes)
            except BaseException as error:  # Wake the consumer, which then reads the chunk itself.
                chunk, ticket.error = UNREAD, error
            with self._threads.lock:
                ticket.chunk = chunk
                if cost is not None:
                    self._learn(cost, chunk)
                if self._queue.head is ticket:
                    self._threads.ready.notify()
                start, ticket = self._claim(number)

    def _claim(self, number: int) -> tuple[int, Ticket | None]:
        """Wait for a chunk to read; without a ticket, the thread ends."""
        threads, queue = self._threads, self._queue
        while self._has_work_for(number):
            start = queue.next_start
            claimed = queue.claim(self._chunks.size, self._chunks.most_ahead)
            if claimed is not None:
                ticket, has_room = claimed
                if has_room:
                    threads.room.notify()  # There is room for another thread's chunk.
                return start, ticket
            if threads.are_shared:
                break
            threads.room.wait()
        threads.note_end(number)
        return 0, None

    def _has_work_for(self, number: int) -> bool:
        wanted = number < self._count.wanted and not self._quick
        return wanted and not self._threads.is_closed and self._queue.has_unclaimed

    def _learn(self, cost: Cost, chunk: Sequence[Any]) -> None:
        """Adapt threads and chunk size to the cost of a chunk."""
        verdict = self._count.learn(cost)
        first = self._handover.first
        if first is not None and not self._quick:
            sure = self._handover.confirm(cost)
            if sure is None:
                return
            if sure and not first.waited:
                # The rate of the consumer alone is known now.
                self._count.begin(waiting=False, rate_here=cost.count / max(cost.cpu, 1e-9))
            verdict = "" if sure else "go home"
        if verdict == "here":
            self._handover.note_no_gain()
        elif verdict == "quick" and self._chunks.is_quick(cost):
            verdict = "here"
        if verdict in ("here", "go home"):
            self._quick = True  # The consumer reads by itself once the buffer is empty.
            fitting = computed_in(cost, CHUNK_SECONDS) if verdict == "here" else cost.count
            self._own.size = max(1, min(self._largest, fitting))
            self._threads.room.notify_all()
            return
        self._adapt_chunks(cost, chunk)
        if verdict == "more":
            self._employ()
            self._threads.room.notify_all()

    def _adapt_chunks(self, cost: Cost, chunk: Sequence[Any]) -> None:
        count = self._count
        self._chunks.adapt(cost, chunk, count.wanted, waiting=count.waiting)


def _as_it_is(read: Read) -> Read:
    return read
