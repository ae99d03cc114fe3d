"""What was seen of one run of a pipeline: how long each stage took, and who waited for whom.

Nothing is counted or timed for each element of a quick pipeline. Clocks are where they cost little:

- around each chunk that is read, which read-ahead needs anyway and adds up, so that it is heard of
  now and then; around each message of a worker, each wait for a thread;
- inside a MapDataset around each stage, for some chunks out of many (`clocked.py`);
- around each stage of the iterators, all the time if an element takes long, else for the
  elements of a chunk now and then (`clocked_iterators.py`).
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from wholegrain._engine.waiting import (
    ThreadTimes,
    involuntary_switches,
    queued_for_each_second,
)
from wholegrain._graph.clocked_iterators import (
    may_replace_methods,
    put_back_methods,
    replace_methods,
    replaced,
)
from wholegrain._graph.pace import Pace
from wholegrain._graph.tape import tape
from wholegrain._observe.stage_ids import StageIds
from wholegrain._observe.times import Reads, Times, extrapolate

_CLOCK_S = 2e-6
"""What a clock around a stage costs for each call."""

_REPLACING_S = 400e-6
"""What replacing methods and putting them back costs, with what Python has to learn again."""

_SHARE = 0.004
"""Which share of the time clocks may cost."""

_FEW_STEPS, _FEW_CALLS, _MANY_CALLS = 5, 16, 4096

_STALE_S = 0.1

_LONG_WAIT_S = 1e-3
"""Of longer waits for a quick element it is looked at whether others had the processor."""

OFF, NOW_AND_THEN, ALWAYS = "off", "now and then", "always"
_IDLE_S, _IDLE_TIMES = 120.0, 30
"""Who stays away so long, and so many times longer than ever, does not train: it was left alone."""


def is_on() -> bool:
    """Whether runs are observed: not if the environment variable WHOLEGRAIN_REPORT is 0."""
    return os.environ.get("WHOLEGRAIN_REPORT", "1") != "0"


class Observed:
    """What was seen of one run.

    Stages are known by their place in the graph: "0" is the output, "0.0" its first parent.
    A dataset that is opened on the way, and is no part of the graph, is known by its name.
    """

    def __init__(self) -> None:
        self.stages: dict[str, Times] = {}
        self.reads: dict[str, Reads] = {}
        self.workers: dict[tuple[str, int], Any] = {}
        self.wait = 0.0
        self._odd_wait = 0.0  # While others had the processor: it does not stand for more.
        self._waits = self._odd_waits = 0
        self._switches_before = 0
        self.loop = 0.0
        self.start = 0.0  # Until the first element, and until each worker had its first.
        self._has_started = False
        self._cpu_before = 0.0  # Seconds of processors that the process had used until then.
        self._start_before = 0.0
        self._started: set[int] = set()
        self.lock = threading.Lock()
        self._output: Callable[[], Any] = _nothing
        self.ids = StageIds()
        self._clockable = False  # Whether there are iterators to put clocks around.
        self.is_alone = False  # Whether the output is the only one there is, and keeps time.
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        # Clocks around the stages of the iterators.
        self.clocks_on = False
        self.calls = 0
        self.steps = self.slow_steps = 0  # Of threads, and those in which calls took long.
        self.consider_at = _FEW_CALLS
        self.deep = False  # Whether they look at the processor's time too.
        self._mode = OFF
        self._windows = 0
        self._replaced: set[type] = set()
        self._own_clocks = False  # Whether iterators have them now and then, not their classes.
        self._since = 0.0  # When they were last switched on or off.
        self._on_again = 0.0
        self._seconds_on = 0.0
        self._seconds_off = 0.0
        self._pace = Pace()
        self._seen = 0.0
        self._left_at = 0.0
        self._longest_away = 0.0

    def __reduce__(self) -> Any:
        return Observed, ()  # A worker sees for itself.

    # Who takes part.

    def opened(self, iterator: Any, dataset: Any, is_output: bool) -> None:
        """Note an iterator of the run; the output is the one that the training loop reads from."""
        if not is_on():
            return
        self._take_in(iterator, dataset)
        if is_output:
            self.be_output(iterator, dataset)
        elif self._mode == ALWAYS:
            iterator.set_clock(True)

    def be_output(self, iterator: Any, dataset: Any) -> None:
        """Begin to look: all that was opened so far belongs to this iterator."""
        if not is_on():
            return
        self.ids.add(dataset)
        self._output = weakref.ref(iterator)
        self._adopt(iterator, dataset)
        self._clockable = any(not it.keeps_time for it in self._iterators)
        if len(self._iterators) == 1:
            self.is_alone = all(it.keeps_time or it.keeps_time_alone for it in self._iterators)
            self._clockable = not self.is_alone
        if self._clockable and not _keeps_time(iterator):
            self.switch(NOW_AND_THEN, time.perf_counter())  # Nobody will say when else.

    def _take_in(self, iterator: Any, dataset: Any) -> None:
        iterator.observed, iterator.observed_as = self, dataset
        self._iterators.add(iterator)

    def _adopt(self, iterator: Any, dataset: Any) -> None:
        """Take in iterators of the user's classes, which nobody has told of."""
        parents = getattr(dataset, "parents", ())
        below = getattr(iterator, "_parents", ())
        if len(parents) != len(below):
            return
        for parent, source in zip(below, parents, strict=True):
            if getattr(parent, "observed", self) is None:
                with contextlib.suppress(Exception):
                    self._take_in(parent, source)
            self._adopt(parent, source)

    def is_output(self, iterator: Any) -> bool:
        """Whether the training loop reads from it."""
        return self._output() is iterator

    def place_of(self, dataset: Any) -> str:
        """Return by what a stage is known."""
        return self.ids.of(dataset)

    def times_of(self, dataset: Any) -> Times:
        """Return what was seen of a stage, to be added to."""
        place = self.place_of(dataset)
        times = self.stages.get(place)
        return self.stages.setdefault(place, Times()) if times is None else times

    def reads_of(self, dataset: Any) -> Reads:
        """Return what was read of a MapDataset, to be added to."""
        return self.reads.setdefault(self.place_of(dataset), Reads())

    def hear(self, whole: Any, worker: int, report: Any) -> None:
        """Keep what a worker said of itself, which runs a share of `whole`."""
        if report is not None:
            self.workers[self.place_of(whole), worker] = report

    # Clocks around the stages of the iterators.

    def switch(self, mode: str, now: float) -> None:
        """Have them always, or for the elements of one chunk, or not."""
        self._pace.switched(list(self._iterators), self.clocks_on)
        if self.clocks_on:
            self._seconds_on += now - self._since
        elif self._since:
            self._seconds_off += now - self._since
        before, self._mode = self._mode, mode
        self.clocks_on = mode != OFF
        self.deep = mode == ALWAYS
        self.calls, self.consider_at = 0, _FEW_CALLS
        self.steps = self.slow_steps = 0
        self._since = now
        if not before == mode == ALWAYS:
            self._left_at = 0.0
        if self._replaced:
            put_back_methods(self._replaced)
            self._replaced = set()
        had_own = before == ALWAYS or self._own_clocks
        self._own_clocks = False
        if mode == NOW_AND_THEN:
            self._windows += 1
            kinds = {type(it) for it in list(self._iterators) if not it.keeps_time}
            self._own_clocks = not may_replace_methods(kinds)
            if not self._own_clocks:
                self._replaced = replace_methods(kinds)
                _windows.add(self)
        has_own = mode == ALWAYS or self._own_clocks
        if had_own != has_own:
            for iterator in list(self._iterators):
                iterator.set_clock(has_own)

    def __del__(self) -> None:
        if getattr(self, "_replaced", None):  # It may not have been made to the end.
            put_back_methods(self._replaced)

    def entered(self, now: float) -> None:
        """Note that the training loop asks for an element."""
        if not self._has_started and self._seen:  # The first one went by without clocks.
            self.start += sum(times.own for times in list(self.stages.values()) if times.clocked)
            self._end_start_up(now)
        self._start_before = self.start
        if self._left_at:
            self._was_away(now - self._left_at)

    def left(self, now: float, seconds: float) -> None:
        """Note that the training loop got an element, and how long that took."""
        self._left_at = now
        if self._has_started:
            waited = max(0.0, seconds - (self.start - self._start_before))
            if waited > _LONG_WAIT_S and self._mode == NOW_AND_THEN and self._was_preempted():
                self._odd_wait += waited
                self._odd_waits += 1
            else:
                self.wait += waited
                self._waits += 1
        else:
            self.start = max(self.start, self._start_before + seconds)
            self._end_start_up(now)

    def _was_preempted(self) -> bool:
        """Whether others were given the processor since this was last asked."""
        before, self._switches_before = self._switches_before, involuntary_switches()
        return self._switches_before != before

    def _end_start_up(self, now: float) -> None:
        """Begin to count: opening files and the like says nothing of how it goes on."""
        self._has_started = True
        self._cpu_before = time.process_time()
        with self.lock:
            for times in list(self.stages.values()):
                times.end_start_up()
        self.wait = self._odd_wait = self.loop = 0.0
        self._waits = self._odd_waits = 0
        self._seconds_on = self._seconds_off = 0.0
        if self._since:
            self._since = now
        self._pace = Pace()
        self._pace.switched(list(self._iterators), was_on=False)

    def _was_away(self, seconds: float) -> None:
        if self._is_idle(seconds):
            if self._since:
                self._since += seconds  # As if that time had not been.
        else:
            self.loop += seconds
            self._longest_away = max(self._longest_away, seconds)

    def _is_idle(self, seconds: float) -> bool:
        return seconds > _IDLE_S and seconds > _IDLE_TIMES * self._longest_away

    def got(self, iterator: Any, start: float, reads: bool) -> None:
        """Note that a chunk was got, since `start`: read right here, or waited for."""
        end = time.perf_counter()
        spent = end - start
        times = self.times_of(iterator.observed_as)
        if reads:
            times.reading += spent
        else:
            times.waited += spent
        if self.is_output(iterator):
            self.entered(start)
            self.left(end, spent)
        elif self._clockable:
            if self.clocks_on:
                tape.below += spent
            self.pause(end)

    def read_unseen(self, iterator: Any, dataset: Any, reader: Any) -> None:
        """Note the chunks that a reader has read while nobody looked, and forgets now."""
        spent, end, count = reader.unseen_seconds, reader.unseen_until, reader.unseen_elements
        reader.unseen_seconds, reader.unseen_elements = 0.0, 0
        self.times_of(iterator.observed_as).reading += spent
        self.reads_of(dataset).pending += count
        if self.is_output(iterator):
            self.entered(end - spent)
            self.left(end, spent)
        else:
            self._seen = max(self._seen, end)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Start workers: that is done once, and says nothing of how it goes on."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.start += spent
            tape.below += spent

    def waiting(
        self,
        iterator: Any,
        dataset: Any = None,
        worker: int | None = None,
        *,
        reads: bool = False,
    ) -> contextlib.AbstractContextManager[None]:
        """Get what comes next from those who run ahead, or read it; not for every element."""
        if worker is not None and worker not in self._started:
            self._started.add(worker)
            return self.starting()
        return self._waiting(iterator, dataset, reads)

    @contextlib.contextmanager
    def _waiting(self, iterator: Any, dataset: Any, reads: bool) -> Iterator[None]:
        start = time.perf_counter()
        is_output = iterator is not None and self.is_output(iterator)
        if is_output:
            self.entered(start)
        began = ThreadTimes.now() if tape.deep else None
        try:
            yield
        finally:
            end = time.perf_counter()
            spent = end - start
            times = self.times_of(iterator.observed_as if dataset is None else dataset)
            if reads:
                times.reading += spent
            else:
                times.waited += spent
            tape.below += spent
            if began is not None:
                tape.deeply_below.add(ThreadTimes.now().without(began))
            if is_output:
                self.left(end, spent)
            elif self._clockable:
                self.pause(end)

    def pause(self, now: float) -> None:
        """Between two chunks: see whether it is time for clocks."""
        self._seen = now
        if self._mode == OFF:
            if replaced:
                _end_stale_windows(now)
            if now >= self._on_again:
                self.switch(NOW_AND_THEN, now)
        elif self._mode == NOW_AND_THEN and self.calls >= _FEW_CALLS:
            self._end_window(now)

    def consider(self, now: float) -> None:
        """After some calls: see whether there may always be clocks, or whether they cost much."""
        self.consider_at = self.calls + _FEW_CALLS
        slow = self.slow_steps > 0.7 * self.steps
        if slow and self.steps < _FEW_STEPS:
            return
        if self._mode == ALWAYS:
            if self.calls > _MANY_CALLS:
                self.switch(ALWAYS if slow else OFF, now)
        elif slow:
            self.switch(ALWAYS, now)
        elif self.calls > _MANY_CALLS:
            self._end_window(now)

    def end_stale_window(self, now: float) -> None:
        """Take the clocks away if nothing has happened for long."""
        if self._mode == NOW_AND_THEN and now - self._since > _STALE_S:
            self._end_window(now)

    def _end_window(self, now: float) -> None:
        cost = self.calls * _CLOCK_S + _REPLACING_S
        self.switch(OFF, now)
        # The more is known, the less is looked at.
        self._on_again = now + cost / _SHARE * (1 + self._windows)

    def snapshot(self) -> dict[str, Any]:
        """Return what was seen so far, as plain values."""
        for iterator in list(self._iterators):
            catch_up = getattr(iterator, "catch_up", None)
            if catch_up is not None:
                catch_up()
        now = time.perf_counter()
        on, off = self._seconds_on, self._seconds_off
        last = max(self._left_at, self._seen, self._since)
        if self.clocks_on:
            on += last - self._since
        elif self._since:
            off += last - self._since + self._pace.since(list(self._iterators), on, now - last)
        factor = 1 + off / on if on and off else 1.0
        with self.lock:
            stages = {place: copy.copy(times) for place, times in list(self.stages.items())}
        extrapolate(stages, factor, list(self.reads.items()))
        return {
            "wait": self._estimated_wait(factor),
            "measured_wait": self.wait + self._odd_wait,
            "loop": self.loop * factor + self._since_left(now),
            "start": self.start,
            "cpu": time.process_time() - self._cpu_before,
            "queued": queued_for_each_second(),
            "stages": stages,
            "workers": dict(self.workers),
        }

    def _estimated_wait(self, factor: float) -> float:
        if not self._waits:
            return self._odd_wait * factor
        # Those in which others had the processor count as the others do, and once as they were.
        return self.wait * factor * (1 + self._odd_waits / self._waits) + self._odd_wait

    def _since_left(self, now: float) -> float:
        """Return the training loop's time since it last had to wait, if it has gone on since."""
        output = self._output()
        if not self.is_alone or not self._left_at or self._is_idle(now - self._left_at):
            return 0.0
        # It is in the middle of a chunk, unless it has come to the end.
        return now - self._left_at if getattr(output, "_cursor", 0) else 0.0


def _nothing() -> None:
    return None


def _keeps_time(iterator: Any) -> bool:
    """Whether an iterator, or one upstream, says now and then that a chunk is over."""
    if getattr(iterator, "keeps_time", False) or hasattr(iterator, "_slots"):
        return True
    return any(_keeps_time(parent) for parent in getattr(iterator, "_parents", ()))


_windows: weakref.WeakSet[Observed] = weakref.WeakSet()


def _end_stale_windows(now: float) -> None:
    """Have no run pay for an iterator that was left alone after its first elements."""
    for observed in list(_windows):
        observed.end_stale_window(now)
        if not observed.clocks_on:
            _windows.discard(observed)
