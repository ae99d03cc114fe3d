"""The threads that read ahead of a consumer, and the lock that they share with it."""

import functools
import os
import threading
from collections.abc import Callable

from wholegrain._read import forks
from wholegrain._read.reader_name import reader_name
from wholegrain._read.shared_threads import SharedThreads


class ReaderThreads:
    """Numbered threads, at most one for each number. Needs the lock, except for `close`.

    Args:
        most: How many threads may run at once.
        shared: Threads of all readers, to be used instead of threads of its own.

    Attributes:
        are_shared: Whether a thread has to end instead of waiting, because others need it.
        most: The same, or 0 once the system has refused to start the first thread.
        lock: Guards everything that the threads and the consumer share. It is reentrant, because
            the garbage collector may call `close` at any time.
        room: Notified when a thread may have something to read.
        ready: Notified when the consumer may have something to take.
        is_closed: Whether the threads have to end.
    """

    def __init__(self, most: int, shared: SharedThreads | None = None) -> None:
        self.most = most
        self.are_shared = shared is not None
        self._shared = shared
        self.is_closed = False
        self._running: set[int] = set()
        self._parent: int | None = None  # In a forked child, the process that has the threads.
        self._make_locks()

    def _make_locks(self) -> None:
        self.lock = threading.RLock()
        self.room = threading.Condition(self.lock)
        self.ready = threading.Condition(self.lock)

    def start(self, wanted: int, work: Callable[[int], None]) -> bool:
        """Start those of the first `wanted` threads that are not running; return if any started.

        If the system allows no thread at all, `most` becomes 0.
        """
        has_started = False
        for number in range(wanted):
            if number in self._running or self.is_closed:
                continue
            try:
                if self._shared is not None:
                    self._shared.submit(functools.partial(work, number))
                else:
                    name = reader_name(number)
                    threading.Thread(target=work, args=(number,), name=name, daemon=True).start()
            except RuntimeError:  # The system allows no more threads.
                if not self._running:
                    self.most = 0
                break
            self._running.add(number)
            has_started = True
        return has_started

    def note_end(self, number: int) -> None:
        """Record that a thread is about to end."""
        self._running.discard(number)
        self.room.notify()  # Pass a wake-up on that this thread does not use.

    def close(self) -> None:
        """Let the threads end, without waiting for those in the middle of a read."""
        with self.lock:
            self.is_closed = True
            self.room.notify_all()
            self.ready.notify_all()

    def leave_to_parent(self, *, has_chunks: bool) -> bool:
        """Close in a forked child, which does not have the threads and may find the lock held.

        Return whether that was necessary: threads were running, or the caller had their chunks.
        """
        needed = bool(self._running) or has_chunks
        if needed:
            self._parent, self.is_closed = os.getppid(), True
        self._make_locks()
        return needed

    def check_open(self) -> None:
        """Raise if the threads have been closed."""
        if self._parent is not None:
            raise forks.used_in_child_error(self._parent)
        if self.is_closed:
            raise RuntimeError("Reading was stopped.")
