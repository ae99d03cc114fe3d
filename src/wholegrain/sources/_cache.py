"""A least-recently-used cache, limited by a number of bytes."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Values that are expensive to create, shared by all threads of a process.

    If several threads ask for the same value at the same time, one creates it and the others wait.
    The value used last is kept even if it is larger than the cache.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._nbytes = 0
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._on_their_way: dict[Hashable, Future[V]] = {}
        self._pid = os.getpid()

    def get(self, key: Hashable, make: Callable[[], tuple[V, int]]) -> V:
        """Return the value of `key`; `make` returns it and its size in bytes."""
        if self._pid != os.getpid():
            self._start()  # a forked child has no thread that would finish or release the lock
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
            waiting = self._on_their_way.get(key)
            if waiting is None:
                mine = self._on_their_way[key] = Future()
        if waiting is not None:
            return waiting.result()
        try:
            value, nbytes = make()
        except BaseException as error:
            with self._lock:
                del self._on_their_way[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._on_their_way[key]
            self._values[key] = (value, nbytes)
            self._nbytes += nbytes
            while self._nbytes > self._max_bytes and len(self._values) > 1:
                _, (_, freed) = self._values.popitem(last=False)
                self._nbytes -= freed
        mine.set_result(value)
        return value
