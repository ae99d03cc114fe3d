"""The open files of a source: opened on first read, separately in each process."""

from __future__ import annotations

import errno
import os
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from wholegrain._core.log import logger

H = TypeVar("H")

# A forked child never closes what its parent opened, because closing may wait for threads that
# exist only in the parent. The child keeps the parent's handles here and does not use them.
_left_to_the_parent: list[dict[int, Any]] = []


def most_open_files() -> int:
    """Return how many files all sources may keep open: most of what the system allows."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError):
        return 512
    return 65536 if soft < 0 else max(16, soft * 3 // 4)


class _Budget:
    """The open files of all sources of this process."""

    def __init__(self) -> None:
        # A source may be garbage-collected, and release its files, while its thread has the lock.
        self.lock = threading.RLock()
        self._count = 0
        self._has_told = False
        self._opened: list[tuple[weakref.ref[Handles[Any]], int]] = []  # some closed since

    def add(self, handles: Handles[Any], number: int, files: int) -> None:
        """Count an open file, and drop others if there are too many."""
        most = most_open_files()
        with self.lock:
            self._count += files
            self._opened.append((weakref.ref(handles), number))
            if len(self._opened) > 2 * most:
                self._opened = [entry for entry in self._opened if entry[0]() is not None]
            if self._count > most:
                self._tell(most)
            while self._count > most and len(self._opened) > 1:
                self._drop_one(len(self._opened) - 1)

    def _tell(self, most: int) -> None:
        if not self._has_told:
            self._has_told = True
            logger().warning(
                "Sources read more files than may be open, which are %d. Some are closed and opened"
                " again, which is slow: allow more with `ulimit -n`.",
                most,
            )

    def subtract(self, files: int) -> None:
        """Count files that were closed."""
        with self.lock:
            self._count -= files

    def drop_half(self) -> bool:
        """Drop half of the open files; return whether there were any."""
        with self.lock:
            found = bool(self._opened)
            for _ in range((len(self._opened) + 1) // 2):
                self._drop_one(len(self._opened))
            return found

    def _drop_one(self, among: int) -> None:
        # At random: sources that are read in turn would need each time what was just dropped.
        at = random.randrange(among)
        self._opened[at], self._opened[-1] = self._opened[-1], self._opened[at]
        reference, number = self._opened.pop()
        handles = reference()
        if handles is not None:
            handles.drop(number)


_budget = _Budget()


def _after_fork() -> None:
    _budget.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def files_of(handle: Any) -> int:
    """Return how many file descriptors a handle has."""
    return getattr(handle, "num_files", 1)


class Handles(Generic[H]):
    """The open files of one source, by number.

    Reads from many threads share a handle. When all sources of the process have too many files
    open, some are dropped; a thread that is still reading from one keeps it alive until it has
    finished.

    Args:
        open: Opens the file with a number.
        close: Closes a handle when the source is closed. Not called for dropped handles.
        dropped: Called with the number of a handle that was dropped.
    """

    def __init__(
        self,
        open: Callable[[int], H],
        close: Callable[[H], None],
        dropped: Callable[[int], None] | None = None,
    ) -> None:
        self._open = open
        self._close = close
        self._dropped = dropped
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._opening: dict[int, threading.Lock] = {}
        self._handles: dict[int, H] = {}
        self._pid = os.getpid()

    def get(self, number: int) -> H:
        """Return the handle of file `number`, and open it if necessary."""
        if self._pid != os.getpid():
            _left_to_the_parent.append(self._handles)
            self._start()
        handle = self._handles.get(number)
        return self._open_once(number) if handle is None else handle

    def _open_once(self, number: int) -> H:
        with self._lock:
            opening = self._opening.setdefault(number, threading.Lock())
        # Only threads that need this file wait; others can open theirs.
        with opening:
            handle = self._handles.get(number)
            if handle is not None:
                return handle
            try:
                handle = self._open(number)
            except OSError as error:
                # Other parts of the program have many files open.
                if error.errno != errno.EMFILE or not _budget.drop_half():
                    raise
                handle = self._open(number)
            with self._lock:
                self._handles[number] = handle
                self._opening.pop(number, None)
        _budget.add(self, number, files_of(handle))
        return handle

    def drop(self, number: int) -> None:
        """Forget a handle. A thread that is reading from it keeps it alive."""
        handle = self._handles.pop(number, None) if self._pid == os.getpid() else None
        if handle is not None:
            _budget.subtract(files_of(handle))
            if self._dropped is not None:
                self._dropped(number)

    def close(self) -> None:
        """Close all handles. Later reads open them again."""
        if self._pid != os.getpid():
            return
        with self._lock:
            handles = list(self._handles.values())
            self._handles = {}
        _budget.subtract(sum(map(files_of, handles)))
        for handle in handles:
            self._close(handle)

    def __del__(self) -> None:
        if self._pid == os.getpid():
            _budget.subtract(sum(map(files_of, self._handles.values())))
