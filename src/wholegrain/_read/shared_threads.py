"""Threads that many readers share, so that their number does not grow with that of the readers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from wholegrain._read import forks
from wholegrain._read.reader_name import reader_name

_FEW, _MOST_THREADS = 8, 128
"""Few readers have threads of their own. More readers share as many as these have by default."""

_IDLE_S = 1.0
"""How long a thread waits for work before it ends."""


class SharedThreads:
    """Runs tasks in the order in which they come, in a limited number of threads.

    Args:
        most: How many threads may run at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._forget()

    def _forget(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._tasks: deque[Callable[[], None]] = deque()
        self._count = self._idle = 0

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task as soon as a thread is free.

        Raises:
            RuntimeError: If there is no thread, and the system allows none.
        """
        with self._changed:
            self._tasks.append(task)
            if self._idle >= len(self._tasks):
                self._changed.notify()
            elif self._count < self._most:
                self._start()

    def _start(self) -> None:
        name = reader_name(self._count)
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError:
            if not self._count:
                self._tasks.clear()
                raise
            return
        self._count += 1
        # A forked child does not have the threads, and may find the lock held.
        forks.call_in_child(self, SharedThreads._forget)

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task()
            del task  # It refers to a reader, which may be dropped while this thread waits.

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._tasks:
                self._idle += 1
                is_notified = self._changed.wait(_IDLE_S)
                self._idle -= 1
                if not is_notified and not self._tasks:
                    self._count -= 1
                    return None
            return self._tasks.popleft()

    def __reduce__(self) -> Any:
        return SharedThreads, (self._most,)  # In another process it has threads of its own.


class SharedReaders(NamedTuple):
    """What the readers of a mixture share.

    Attributes:
        threads: The threads that read for all of them.
        parts: Into how many parts the buffers of a few readers are divided.
    """

    threads: SharedThreads
    parts: int

    @classmethod
    def of(cls, count: int, outer: SharedReaders | None) -> SharedReaders | None:
        """Return what `count` readers share, which may be some of others that share it."""
        if count <= _FEW:
            return outer
        parts = -(-count // _FEW)
        if outer is not None:
            return cls(outer.threads, outer.parts * parts)
        return cls(SharedThreads(_MOST_THREADS), parts)
