"""Self time: the time of a call minus the time of the calls that it makes to other stages."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from wholegrain._read.waiting import ThreadTimes


class Started(NamedTuple):
    """The start time of a call, and the state of the timer before it, which `end` restores."""

    at: float
    outside: float
    thread_outside: ThreadTimes
    thread: ThreadTimes | None


class Spent(NamedTuple):
    """The total time of a call, its self time, and its thread times if the timer is `deep`."""

    elapsed: float
    own: float
    thread: ThreadTimes | None


class SelfTimer(threading.local):
    """Measures self time, separately in each thread.

    Attributes:
        inner: Seconds in calls that the current call made and that have returned.
        depth: How many nested calls are in progress.
        deep: Whether to measure the thread's CPU time and run-queue time too, which costs some
            microseconds per call.
        notes: Where the clocks in a sampled read write; None outside of such reads.
    """

    inner = 0.0
    depth = 0
    deep = False
    notes: Any = None

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
        """End the innermost call, and count all of its time as inner time of its caller."""
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
        """Exclude seconds from the self time of the current call: they are counted elsewhere."""
        self.inner += seconds

    @contextlib.contextmanager
    def apart(self, deep: bool) -> Iterator[None]:
        """Measure calls, in `deep` mode or not, without counting them to the current call."""
        before = self.inner, self.thread, self.deep
        self.inner, self.thread, self.deep = 0.0, ThreadTimes(), deep
        try:
            yield
        finally:
            self.inner, self.thread, self.deep = before


timer = SelfTimer()


class Clock(Protocol):
    """Measures the calls of one stage."""

    def start(self) -> Any:
        """Begin a call; return a value to pass to `stop`."""

    def stop(self, started: Any, elements: Sequence[Any]) -> None:
        """End a call that produced `elements`."""

    def take_back(self, count: int) -> None:
        """Subtract elements that were put back and will be produced again."""


def timed_call(clock: Clock, call: Callable[..., Any], *args: Any) -> Any:
    """Call a function that returns an element, and measure it."""
    made: tuple[Any, ...] = ()
    started = clock.start()
    try:
        made = (call(*args),)
    finally:
        clock.stop(started, made)
    return made[0]


def timed_read(clock: Clock, read: Callable[[Any], Any], which: Any) -> Any:
    """Call a function that returns several elements, or None, and measure it."""
    # The argument is not named `index`: notes on errors find the stage by an argument of that name.
    made: Any = None
    started = clock.start()
    try:
        made = read(which)
    finally:
        clock.stop(started, () if made is None else made)
    return made
