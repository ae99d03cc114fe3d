"""The open files of a source: opened on first read, separately in each process."""

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

H = TypeVar("H")

# A forked child never closes what its parent opened, because closing may wait for threads that
# exist only in the parent. The child keeps the parent's handles here and does not use them.
_left_to_the_parent: list[dict[int, Any]] = []


def _most_open_files() -> int:
    """Return how many files a source may keep open: most of what the system allows."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError):
        return 512
    return 65536 if soft < 0 else max(16, soft * 3 // 4)


class Handles(Generic[H]):
    """The open files of one source, by number.

    Reads from many threads share a handle. When too many files are open, the one opened first
    is dropped; a thread that is still reading from it keeps it alive until it has finished.

    Args:
        open: Opens the file with a number.
        close: Closes a handle when the source is closed. Not called for dropped handles.
        files_each: How many file descriptors a handle has.
    """

    def __init__(
        self, open: Callable[[int], H], close: Callable[[H], None], files_each: int = 1
    ) -> None:
        self._open = open
        self._close = close
        self._most = _most_open_files() // files_each
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
            handle = self._open(number)
            with self._lock:
                while len(self._handles) >= self._most:
                    del self._handles[next(iter(self._handles))]
                self._handles[number] = handle
                self._opening.pop(number, None)
        return handle

    def close(self) -> None:
        """Close all handles. Later reads open them again."""
        if self._pid != os.getpid():
            return
        with self._lock:
            handles = list(self._handles.values())
            self._handles = {}
        for handle in handles:
            self._close(handle)
