"""A least-recently-used cache, limited by a number of bytes."""

import itertools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

V = TypeVar("V")

# How much memory the caches of all sources of a process may take, if none of them alone may take
# more. A mixture of a thousand sources would otherwise have a thousand full caches.
_BYTES_OF_PROCESS = 1 << 30

_caches: "weakref.WeakSet[BoundedCache[Any]]" = weakref.WeakSet()
_caches_lock = threading.Lock()
_ticks = itertools.count()


def _after_fork() -> None:
    global _caches_lock
    _caches_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class BoundedCache(Generic[V]):
    """Values that are expensive to create, shared by all threads of a process.

    If several threads ask for the same value at the same time, one creates it and the others wait.
    The value used last is kept even if it is larger than the cache.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self.nbytes = 0
        self.used_at = next(_ticks)
        self._start()
        with _caches_lock:
            _caches.add(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._on_their_way: dict[Hashable, Future[V]] = {}
        self._pid = os.getpid()

    def _start_in_child(self) -> None:
        if self._pid != os.getpid():
            self._start()  # a forked child has no thread that would finish or release the lock

    def get(self, key: Hashable, make: Callable[[], tuple[V, int]]) -> V:
        """Return the value of `key`; `make` returns it and its size in bytes."""
        self._start_in_child()
        with self._lock:
            self.used_at = next(_ticks)
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
            self.nbytes += nbytes
            while self.nbytes > self.max_bytes and len(self._values) > 1:
                self._pop()
        mine.set_result(value)
        _limit_all(self)
        return value

    def _pop(self) -> None:
        _, (_, freed) = self._values.popitem(last=False)
        self.nbytes -= freed

    def forget(self, is_meant: Callable[[Any, int], bool]) -> None:
        """Drop some values, by their keys and sizes."""
        self._start_in_child()
        with self._lock:
            for key, (_, nbytes) in list(self._values.items()):
                if is_meant(key, nbytes):
                    del self._values[key]
                    self.nbytes -= nbytes

    def free(self, nbytes: int) -> int:
        """Drop values until this many bytes are free, and return how many are."""
        self._start_in_child()
        before = self.nbytes
        with self._lock:
            while before - self.nbytes < nbytes and self._values:
                self._pop()
        return before - self.nbytes


def _limit_all(just_used: BoundedCache[Any]) -> None:
    """Drop values of the caches that were not used for longest, if all take too much memory."""
    with _caches_lock:
        caches = list(_caches)
    most = max(_BYTES_OF_PROCESS, *[cache.max_bytes for cache in caches])
    excess = sum(cache.nbytes for cache in caches) - most
    for cache in sorted(caches, key=lambda cache: cache.used_at) if excess > 0 else ():
        if cache is not just_used and excess > 0:
            excess -= cache.free(excess)
