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

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic

from wholegrain._core.failure import record_all
from wholegrain._core.types import T
from wholegrain._read import forks
from wholegrain._read.chunk_size import CHUNK_SECONDS, ChunkSizes, computed_in
from wholegrain._read.reader_count import Cost, ReaderCount, Waits, timed
from wholegrain._read.reader_count import Read as Read
from wholegrain._read.reader_name import as_first_reader, reader_name
from wholegrain._read.shutdown import stop_at_exit

_THREAD_CHUNK_SECONDS = 5e-3
"""The time that a chunk should take that a thread computes. The hand-over needs larger chunks."""

_WAITING_CHUNK_SECONDS = 25e-3
"""The time that a chunk should take that a thread waits for, while other threads continue."""

_SURE_SECONDS = 50e-3
"""How much CPU time slow reads have to take in a row before threads take over."""

_SLOW_FIRST_SECONDS = 2e-3
"""If the first read takes this much CPU time, a thread continues at once. The consumer may be busy
for a while, for example compiling its first training step."""

_LIKE_THE_FIRST = 0.25
"""If later reads take this share of the first one's time, the first was not slow because it opened
files."""

_TRY_AGAIN_SECONDS, _TRY_AGAIN_MOST_SECONDS = 1.0, 10.0
"""How long to wait before threads are tried again after they were no faster than the consumer."""

_FIRST_READS, _UNWATCHED_SECONDS = 8, 50e-3
"""After the first reads, while the cost per read is stable, measure only one read per 50 ms."""

_QUICK_READ_SECONDS = 5e-3
"""Reads longer than this are always measured."""

_CACHED_BYTES = 1 << 15
"""If all CPUs are busy, the consumer reads larger elements itself, while they are in its cache."""

_UNREAD: list[Any] = []
"""Marks a chunk that the consumer has to read itself."""


class _Ticket:
    """A chunk that a thread has claimed."""

    __slots__ = ("chunk", "error", "stop")

    def __init__(self, stop: int) -> None:
        self.stop = stop
        self.chunk: Sequence[Any] | None = None
        self.error: BaseException | None = None


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

    Attributes:
        unwatched: Whether the consumer's next read takes only the wall clock.
        unseen_seconds: The time of such reads, since a reader of this attribute set it to 0.
        unseen_elements: How many elements such reads returned.
        unseen_until: When the last of them ended.
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
    ) -> None:
        self._read = self._read_self = read
        self._read_plainly = read_unwatched or read
        self._stop = stop
        self._most_threads = min(num_threads, buffer_size)
        if self._most_threads:
            self._read_self = as_first_reader(self._read_self)
            self._read_plainly = as_first_reader(self._read_plainly)
        self._buffer_size = buffer_size
        self._largest = largest_chunk
        self._largest_of_threads = min(largest_chunk, buffer_size)
        self._sizes = ChunkSizes(largest_chunk, chunk_hint, size_of, buffer_bytes)
        self._size_of = size_of
        self._buffer_bytes = buffer_bytes
        self._most_ahead = buffer_size  # Reduced if elements are large.
        self._chunk_size = 1
        self._per_element = float("inf")  # Seconds per element of the fastest chunk so far.
        self._quick = True  # Whether the consumer reads by itself.
        self._slow_reads = 0
        self._slow_cpu = 0.0
        self._slow_start, self._slow_since = 0, 0.0
        self._first: Cost | None = None  # The first read, until later reads confirm its cost.
        self._try_again_after, self._try_again_at = _TRY_AGAIN_SECONDS, 0.0
        self._watched = 0  # How many reads were measured.
        self.unwatched = False
        self._watch_at, self._longest = 0.0, 0.0  # When to measure the next read, or a slow one.
        self.unseen_seconds, self.unseen_until, self.unseen_elements = 0.0, 0.0, 0
        # Guarded by the lock from here on.
        self._make_locks()
        self._tickets: deque[_Ticket] = deque()
        self._next_start = start
        self._taken = start
        self._held = 0
        self._closed = False
        self._parent: int | None = None  # In a forked child, the process that has the threads.
        self._employed: set[int] = set()
        self._thread_count = ReaderCount(self._most_threads)
        self._is_crowded = is_crowded
        self._waits = Waits()

    def _make_locks(self) -> None:
        # Reentrant, because the garbage collector may call `close` at any time.
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._ready = threading.Condition(self._lock)

    # The consumer's side.

    def next_chunk(self) -> tuple[int, Sequence[T]]:
        """Return the position after the next chunk, and the chunk."""
        if self._quick and not self._tickets:
            return self._read_here()
        with self._lock:
            if not self._tickets or self._tickets[0].chunk is None:
                self._wait()
            if self._parent is not None:
                raise forks.used_in_child_error(self._parent)
            if self._closed:
                raise RuntimeError("Reading was stopped.")
            ticket = self._tickets[0] if self._tickets else None
            if ticket is not None:
                error, ticket.error = ticket.error, None
                if error is not None:
                    try:
                        raise error
                    finally:
                        del error  # Avoids a reference cycle: its traceback refers to this frame.
                if ticket.chunk is not _UNREAD:
                    return self._hand_out(ticket)
        if ticket is None:
            return self._read_here()
        ticket.chunk = self._read_self(self._taken, ticket.stop)
        with self._lock:
            return self._hand_out(ticket)

    def _hand_out(self, ticket: _Ticket) -> tuple[int, Any]:
        """Return the first ticket's chunk to the consumer. Called with the lock held."""
        self._tickets.popleft()
        self._held = ticket.stop - self._taken
        self._taken = ticket.stop
        self._room.notify()
        return ticket.stop, ticket.chunk

    def _wait(self) -> None:
        """Wait for the next chunk, unless the consumer has to read it. Needs the lock."""
        if not self._quick:
            self._employ()
        if self._quick and not self._tickets:
            return
        self._thread_count.starved()
        while not self._closed and (not self._tickets or self._tickets[0].chunk is None):
            self._ready.wait()

    @property
    def reads_here(self) -> bool:
        """Whether the consumer currently reads by itself."""
        return self._quick

    def start(self) -> None:
        """Begin to read in the background."""
        if self._most_threads and self._next_start < self._stop:
            with self._lock:
                self._quick = False
                self._employ()

    def extend(self, stop: int) -> None:
        """Continue reading up to a later position."""
        with self._lock:
            self._stop = stop
            if not self._quick:
                self._employ()
            self._room.notify_all()

    def close(self) -> None:
        """End the threads, without waiting for those in the middle of a read."""
        with self._lock:
            self._closed = True
            self._room.notify_all()
            self._ready.notify_all()

    def _read_here(self) -> tuple[int, Sequence[T]]:
        start = self._next_start
        stop = min(start + self._chunk_size, self._stop)
        try:
            if self.unwatched:
                chunk = self._read_unwatched(start, stop)
                self._next_start = self._taken = stop
                return stop, chunk
            # `alone` costs as much as some reads, so use it only if threads may soon take over.
            alone = self._slow_reads > 0 or not self._watched
            chunk, cost = timed(self._read_self, start, stop, alone=alone)
        except BaseException:
            # The consumer was interrupted. If that happens again at the same element, the elements
            # before it should be returned first.
            self._chunk_size, self.unwatched = 1, False
            raise
        self._next_start = self._taken = stop
        size = self._chunk_size
        settled = not self._slow_reads and self._watched > _FIRST_READS
        self._chunk_size = self._sizes.after(size, cost, chunk, settled)
        if self._most_threads:
            self._consider_threads(cost, chunk)
        self._watched += 1
        is_same = not self._slow_reads and 2 * abs(self._chunk_size - size) <= size
        if is_same and self._watched > _FIRST_READS and cost.wall < _QUICK_READ_SECONDS:
            self.unwatched, self._longest = self._quick, 2 * cost.wall
            self._watch_at = time.perf_counter() + _UNWATCHED_SECONDS
        return stop, chunk

    def _read_unwatched(self, start: int, stop: int) -> Sequence[Any]:
        """Read a chunk with the wall clock alone: the other clocks cost as much as some reads."""
        began = time.perf_counter()
        chunk = self._read_plainly(start, stop)
        self.unseen_until = ended = time.perf_counter()
        self.unseen_seconds += ended - began
        self.unseen_elements += stop - start
        self.unwatched = ended - began <= self._longest and ended < self._watch_at
        return chunk

    def _consider_threads(self, cost: Cost, chunk: Sequence[Any]) -> None:
        """Hand over to threads if reads stay slow after the first ones, which may open files."""
        whole_chunk = cost.cpu / cost.count * self._largest_of_threads
        computed = whole_chunk > 4 * CHUNK_SECONDS and cost.cpu > 0.5 * CHUNK_SECONDS
        now = time.perf_counter()
        if not cost.waited and (not computed or now < self._try_again_at):
            self._slow_reads = 0
            return
        self._slow_reads += 1
        if self._slow_reads == 1:
            self._slow_start, self._slow_since, self._slow_cpu = self._taken, now, cost.cpu
            if not self._watched:
                self._read_on(cost, chunk)
            return
        self._slow_cpu += cost.cpu
        if not cost.waited and self._slow_cpu < _SURE_SECONDS:
            return
        self._slow_reads = 0
        small = not len(chunk) or self._size_of(chunk[0]) < _CACHED_BYTES
        if not self._is_crowded or small or self._waits.see(cost):
            rate = (self._taken - self._slow_start) / (now - self._slow_since)
            self._hand_over(cost, chunk, 0.0 if cost.waited else rate)

    def _read_on(self, cost: Cost, chunk: Sequence[Any]) -> None:
        """Let threads continue after the first read, if that was slow."""
        if cost.waited or (cost.cpu > _SLOW_FIRST_SECONDS and not self._is_crowded):
            self._slow_reads = 0
            self._first = cost
            self._hand_over(cost, chunk, 0.0)

    def _is_sure(self, cost: Cost) -> bool | None:
        """Return whether reads after the first are slow too; None if that is not known yet."""
        first = self._first
        assert first is not None
        if first.waited:
            return cost.waited and cost.wall > _LIKE_THE_FIRST * first.wall
        if cost.cpu < _LIKE_THE_FIRST * first.cpu:
            return False
        self._slow_cpu += cost.cpu
        return True if self._slow_cpu >= _SURE_SECONDS else None

    def _hand_over(self, cost: Cost, chunk: Sequence[Any], rate: float) -> None:
        """Let threads read from now on. `rate` is the consumer's rate, or 0 if unknown."""
        with self._lock:
            self._quick = False
            self._thread_count.begin(waiting=cost.waited, rate_here=rate)
            self._limit_memory(chunk)
            self._chunk_size = self._thread_chunk(cost)
            self._held = cost.count
            self._employ()

    @property
    def ready_count(self) -> int:
        """How many of the next elements have been read."""
        with self._lock:
            done = itertools.takewhile(lambda ticket: ticket.chunk is not None, self._tickets)
            return sum(len(ticket.chunk or ()) for ticket in done)

    # The readers' side.

    def _employ(self) -> None:
        """Start the wanted threads that are not running yet. Called with the lock held."""
        for number in range(self._thread_count.wanted):
            if number in self._employed or self._closed:
                continue
            thread = threading.Thread(
                target=self._work, args=(number,), name=reader_name(number), daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # The system allows no more threads.
                if not self._employed:
                    self._quick, self._most_threads = True, 0
                return
            self._employed.add(number)
            stop_at_exit(self, ReadAhead.close)
            forks.call_in_child(self, ReadAhead._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Stop in a forked child, which does not have the threads and may find the lock held."""
        if self._employed or self._tickets:
            self._parent = os.getppid()
            self._closed = True
            self._quick = False
            self._tickets.clear()
        self._make_locks()

    def _work(self, number: int) -> None:
        record_all()
        with self._lock:
            start, ticket = self._claim(number)
        while ticket is not None:
            cost = None
            try:
                computes = not self._thread_count.waiting
                chunk, cost = timed(self._read, start, ticket.stop, alone=computes)
            except BaseException as error:  # Wake the consumer, which then reads the chunk itself.
                chunk, ticket.error = _UNREAD, error
            with self._lock:
                ticket.chunk = chunk
                if cost is not None:
                    self._learn(cost, chunk)
                if self._tickets and self._tickets[0] is ticket:
                    self._ready.notify()
                start, ticket = self._claim(number)

    def _claim(self, number: int) -> tuple[int, _Ticket | None]:
        """Wait for a chunk to read; without a ticket, the thread ends. Needs the lock."""
        while self._has_work_for(number):
            start = self._next_start
            held = min(self._held, self._most_ahead)
            room = self._most_ahead - max(0, held - 1) - (start - self._taken)
            if room > 0:
                ticket = _Ticket(min(start + min(self._chunk_size, room), self._stop))
                self._tickets.append(ticket)
                self._next_start = ticket.stop
                if room > ticket.stop - start:
                    self._room.notify()  # There is room for another thread's chunk.
                return start, ticket
            self._room.wait()
        self._employed.discard(number)
        self._room.notify()  # Pass a wake-up on that this thread does not use.
        return 0, None

    def _has_work_for(self, number: int) -> bool:
        wanted = number < self._thread_count.wanted and not self._quick
        return wanted and not self._closed and self._next_start < self._stop

    def _learn(self, cost: Cost, chunk: Sequence[Any]) -> None:
        """Adapt threads and chunk size to the cost of a chunk. Called with the lock held."""
        verdict = self._thread_count.learn(cost)
        if self._first is not None and not self._quick:
            sure = self._is_sure(cost)
            if sure is None:
                return
            if sure and not self._first.waited:
                # The rate of the consumer alone is known now.
                self._thread_count.begin(waiting=False, rate_here=cost.count / max(cost.cpu, 1e-9))
            self._first = None
            verdict = "" if sure else "go home"
        if verdict == "here":
            self._try_again_at = time.perf_counter() + self._try_again_after
            self._try_again_after = min(2 * self._try_again_after, _TRY_AGAIN_MOST_SECONDS)
        elif verdict == "quick" and self._is_quick(cost):
            verdict = "here"
        if verdict in ("here", "go home"):
            self._quick = True  # The consumer reads by itself once the buffer is empty.
            fitting = computed_in(cost, CHUNK_SECONDS) if verdict == "here" else cost.count
            self._chunk_size = max(1, min(self._largest, fitting))
            self._room.notify_all()
            return
        self._limit_memory(chunk)
        self._chunk_size = self._thread_chunk(cost)
        if verdict == "more":
            self._employ()
            self._room.notify_all()

    def _is_quick(self, cost: Cost) -> bool:
        """Return whether a whole chunk of a thread would be too quick for a hand-over."""
        return cost.cpu / cost.count * self._largest_of_threads < CHUNK_SECONDS

    def _limit_memory(self, chunk: Sequence[Any]) -> None:
        """Read fewer elements ahead if they are large. Called with the lock held."""
        if not len(chunk):
            return
        # Measure several, because elements may be missing.
        nbytes = max([self._size_of(chunk[index]) for index in (0, len(chunk) // 2, -1)])
        fewest = 2 * self._thread_count.wanted if self._thread_count.waiting else 2
        fitting = max(fewest, self._buffer_bytes // max(1, nbytes))
        self._most_ahead = min(self._buffer_size, fitting)

    def _thread_chunk(self, cost: Cost) -> int:
        """Return how many elements one thread should read at a time."""
        fair = max(1, 2 * self._most_ahead // (3 * max(1, self._thread_count.wanted)))
        if self._thread_count.waiting:
            fitting = int(_WAITING_CHUNK_SECONDS * cost.count / max(cost.wall, 1e-9))
        else:
            fitting = computed_in(cost, _THREAD_CHUNK_SECONDS)
        if cost.wall / cost.count < 0.7 * self._per_element:
            fitting = max(fitting, 2 * cost.count)  # Larger reads cost less per element: grow.
        self._per_element = min(self._per_element, cost.wall / cost.count)
        return max(1, min(fitting, fair, self._largest_of_threads))
