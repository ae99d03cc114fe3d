"""How long a stage takes by itself: the time of a call without that of the stages it calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from wholegrain._read.waiting import ThreadTimes


class Started(NamedTuple):
    """What `SelfTimer.begin` returns, for `end`: when it was, and what was known before."""

    at: float
    outside: float
    thread_outside: ThreadTimes
    thread: ThreadTimes | None


class Spent(NamedTuple):
    """What a call took: in all, by itself, and that by all clocks of the thread, if it is deep."""

    elapsed: float
    own: float
    thread: ThreadTimes | None


class SelfTimer(threading.local):
    """What a thread spent in calls that have returned, since the current one was begun.

    Attributes:
        inner: Seconds of those calls.
        depth: How many calls are going on.
        deep: Whether all clocks of the thread are looked at, which takes some microseconds more.
    """

    inner = 0.0
    depth = 0
    deep = False

    def __init__(self) -> None:
        self.thread = ThreadTimes()

    def begin(self) -> Started:
        """Begin a call."""
        outside, thread_outside, thread = self.inner, self.thread, None
        self.inner = 0.0
        self.depth += 1
        if self.deep:
            self.thread, thread = ThreadTimes(), ThreadTimes.now()
        return Started(time.perf_counter(), outside, thread_outside, thread)

    def end(self, started: Started) -> Spent:
        """End the call that was begun last. To whoever called it, all of it was this call."""
        elapsed = time.perf_counter() - started.at
        own = elapsed - self.inner
        thread = None
        if started.thread is not None:
            whole = ThreadTimes.now().without(started.thread)
            thread = whole.without(self.thread)
            started.thread_outside.add(whole)
        self.thread = started.thread_outside
        self.inner = started.outside + elapsed
        self.depth -= 1
        return Spent(elapsed, own, thread)

    def exclude(self, seconds: float) -> None:
        """Count seconds as not those of the current call: they are noted elsewhere."""
        self.inner += seconds

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Look at all clocks of the thread, for calls that are no part of the current one."""
        before = self.inner, self.thread, self.deep
        self.inner, self.thread, self.deep = 0.0, ThreadTimes(), True
        try:
            yield
        finally:
            self.inner, self.thread, self.deep = before


timer = SelfTimer()


class Clock(Protocol):
    """Measures the calls of one stage."""

    def start(self) -> Any:
        """Begin a call: what it returns is for `stop`."""

    def stop(self, started: Any, elements: Sequence[Any]) -> None:
        """End a call, which has made these elements."""

    def take_back(self, count: int) -> None:
        """Count elements as not made: they will be made again."""
