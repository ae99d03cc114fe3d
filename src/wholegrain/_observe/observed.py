"""The measurements of one run: the time of each stage, and which stage waited for which.

In a quick pipeline, nothing is counted or timed per element. Clocks are used where they are cheap:

- Read-ahead measures each chunk for its own decisions. It adds these times up and passes them on
  now and then. Messages of workers and waits for threads are always measured.
- The stages of a MapDataset are measured for a sample of the chunks (`clocked.py`).
- The stages of the iterators are always measured if elements are slow, else for a sample of the
  elements (`sampler.py`).

In a tracked run, every call of every stage is measured, and added up in `totals` too.
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

from wholegrain._core.interruption import suppress_errors
from wholegrain._observe import profiler
from wholegrain._observe.clock import Spent, timer
from wholegrain._observe.consumer import Consumer
from wholegrain._observe.sampler import ALWAYS, NOW_AND_THEN, OFF, Sampler
from wholegrain._observe.shown import runs_ahead_of
from wholegrain._observe.stage_ids import StageIds
from wholegrain._observe.times import Reads, Times, Total, extrapolate
from wholegrain._observe.tracking import Aims
from wholegrain._read.waiting import ThreadTimes, queued_for_each_second


def is_on() -> bool:
    """Return whether runs are measured: they are, unless the variable WHOLEGRAIN_REPORT is 0."""
    return os.environ.get("WHOLEGRAIN_REPORT", "1") != "0"


class Observed:
    """The measurements of one run.

    The id of a stage is its path in the graph: "0" is the output, "0.0" its first parent. A
    dataset that a stage opens while it runs is an input of that stage.

    Args:
        aims: What the run is tracked for; None if it is not tracked.

    Attributes:
        is_on: Whether the run is measured.
    """

    def __init__(self, aims: Aims | None = None) -> None:
        self.aims: Any = aims
        self.is_on = aims is not None or is_on()
        self.stages: dict[str, Times] = {}
        self.totals: dict[str, Total] = {}
        self.reads: dict[str, Reads] = {}
        self.workers: dict[tuple[str, int, int], Any] = {}
        self.failures: Callable[[], int | None] = _nothing  # How many were tolerated.
        self.lock = threading.Lock()
        self.ids = StageIds()
        self.consumer = Consumer()
        self.sampler = Sampler(aims is not None)
        self.is_alone = False  # Whether the output is the only iterator, and measures itself.
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._holder: Callable[[], Any] = _nothing
        self._last: Any = None  # The dataset of the last stage.
        self._clockable = False  # Whether some iterators do not measure themselves.
        self._thread = 0  # The id of the thread that reads from the last stage.

    def __reduce__(self) -> Any:
        return Observed, (self.aims,)  # Each worker measures for itself.

    # Iterators of the run.

    def opened(self, iterator: Any, dataset: Any) -> bool:
        """Register an iterator of the run; return whether it needs a clock around it."""
        if not self.is_on:
            return False
        self._take_in(iterator, dataset)
        self._adopt(iterator, dataset)
        return self.sampler.mode == ALWAYS

    def be_output(self, holder: Any, iterator: Any, dataset: Any) -> None:
        """Register the last stage, and start sampling.

        Args:
            holder: Reads from the last stage for the training loop. It has `handed_out`, the
                number of elements so far, and `set_clocks`.
            iterator: The iterator of the last stage.
            dataset: The dataset of the last stage.
        """
        if not self.is_on:
            return
        if iterator.observed is not self:
            self._take_in(iterator, dataset)
        self.ids.add(dataset)
        self._holder = weakref.ref(holder)
        self._last = iterator.observed_as
        self._adopt(iterator, dataset)
        self._thread = threading.get_ident()
        if self.aims is not None:
            self._clockable = True
            for one in self._iterators:
                self._name(one)
            return
        self._clockable = any(not it.keeps_time for it in self._iterators)
        self.is_alone = len(self._iterators) == 1 and not self._clockable
        if self._clockable:
            if self.sampler.mode != OFF:  # The stages were reopened.
                holder.set_clocks(True)
            self.switch(ALWAYS if self.sampler.mode == ALWAYS else NOW_AND_THEN)

    def _take_in(self, iterator: Any, dataset: Any) -> None:
        iterator.observed, iterator.observed_as = self, dataset
        self._iterators.add(iterator)

    def _adopt(self, iterator: Any, dataset: Any) -> None:
        """Register iterators of the user's classes, which do not register themselves."""
        parents = getattr(dataset, "parents", ())
        below = getattr(iterator, "_parents", ())
        if len(parents) != len(below):
            return
        for parent, source in zip(below, parents, strict=True):
            if getattr(parent, "observed", self) is None:
                with suppress_errors():
                    self._take_in(parent, source)
                    self._adopt(parent, source)

    def _name(self, iterator: Any) -> None:
        """Name a stage of a tracked run."""
        dataset = iterator.observed_as
        self.total_of(self.place_of(dataset)).name = stage_name(dataset, iterator)

    def is_output(self, iterator: Any) -> bool:
        """Return whether the training loop reads from an iterator."""
        return self._last is iterator.observed_as

    def is_last(self, dataset: Any) -> bool:
        """Return whether a dataset is the last stage of the run."""
        return self._last is dataset

    def place_of(self, dataset: Any) -> str:
        """Return the id of a stage."""
        return self.ids.of(dataset)

    def times_of(self, dataset: Any) -> Times:
        """Return the times of a stage, for the caller to update."""
        place = self.place_of(dataset)
        times = self.stages.get(place)
        return self.stages.setdefault(place, Times()) if times is None else times

    def total_of(self, place: str) -> Total:
        """Return the totals of a stage of a tracked run, for the caller to update."""
        with self.lock:
            return self.totals.setdefault(place, Total())

    def reads_of(self, dataset: Any) -> Reads:
        """Return the number of reads of a MapDataset, for the caller to update."""
        return self.reads.setdefault(self.place_of(dataset), Reads())

    def hear(self, whole: Any, worker: int, report: Any) -> None:
        """Keep the latest report of a worker that runs a shard of `whole`."""
        if report is not None:
            self.workers[self.place_of(whole), worker, report["pid"]] = report

    # Clocks around the stages of the iterators.

    @property
    def clocks_on(self) -> bool:
        """Whether clocks are around the stages of the iterators now."""
        return self.sampler.mode != OFF

    def switch(self, mode: str) -> None:
        """Switch clocks to a mode of the sampler: always, now and then, or off."""
        holder, now = self._holder(), time.perf_counter()
        if holder is None or mode == self.sampler.mode:
            return
        before, calls = self.sampler.mode, self.sampler.calls
        self.sampler.switch(mode, now, self._handed_out())
        if mode != ALWAYS:
            self.consumer.left_at = 0.0  # The time until the next window is not measured.
        holder.set_clocks(mode != OFF)
        if before == NOW_AND_THEN and mode == OFF:
            ended = time.perf_counter()
            self.sampler.rest(ended, calls, ended - now)

    def anchored(self, now: float) -> None:
        """Called between two elements, in the thread that reads from the last stage."""
        self._thread = threading.get_ident()
        self.pause(now)

    def pause(self, now: float) -> None:
        """Called between two chunks: switch clocks on or off if it is time."""
        if self._clockable and threading.get_ident() == self._thread:
            self.sampler.saw(now, self._handed_out())
            # Not in the middle of a measured call: the rest of it would count as its own time.
            if not timer.depth:
                self.switch(self.sampler.at_pause(now))

    def note_call(self, dataset: Any, spent: Spent, made: int) -> None:
        """Add the time that a stage took for `made` elements."""
        times = self.times_of(dataset)
        times.clocked = True
        times.own += spent.own
        times.elements += made
        if spent.thread is not None:
            times.look(spent.own, spent.own * spent.thread.computing_share)
        self.sampler.called()

    def after_step(self, seconds: float, calls: int) -> None:
        """Record that an outermost call returned, which made `calls` calls in all stages."""
        mode = self.sampler.after_step(seconds, calls)
        if threading.get_ident() == self._thread:  # Other threads may be inside a call.
            self.switch(mode)

    def _handed_out(self) -> int:
        holder = self._holder()
        return 0 if holder is None else holder.handed_out

    # The training loop.

    def entered(self, now: float) -> None:
        """Record that the training loop asks for an element."""
        consumer = self.consumer
        if not consumer.has_started and self.sampler.seen and self._handed_out():
            # The first element was handed out without clocks.
            clocked = [times.own for times in list(self.stages.values()) if times.clocked]
            consumer.start += sum(clocked)
            self._end_start_up(now)
        self.sampler.skip(consumer.entered(now))

    def left(self, now: float, seconds: float) -> None:
        """Record that the training loop got an element, and how long that took."""
        if self.consumer.left(now, seconds, is_quick=self.sampler.mode == NOW_AND_THEN):
            self._end_start_up(now)

    def _end_start_up(self, now: float) -> None:
        with self.lock:
            self.consumer.end_start_up(list(self.stages.values()))
        self.sampler.forget(now, self._handed_out())

    # Stages that measure themselves.

    def got(self, iterator: Any, start: float, reads: bool) -> None:
        """Record that a chunk took from `start` until now: read by the caller, or waited for."""
        end = time.perf_counter()
        spent = end - start
        self._note_wait(iterator.observed_as, spent, reads)
        if self.clocks_on:
            timer.exclude(spent)
        if self.is_output(iterator):
            self.entered(start)
            self.left(end, spent)
        else:
            self.pause(end)

    def _note_wait(self, dataset: Any, seconds: float, reads: bool) -> None:
        times = self.times_of(dataset)
        if reads:
            times.reading += seconds
        else:
            times.waited += seconds

    def read_unseen(self, iterator: Any, dataset: Any, reader: Any) -> None:
        """Record, and reset, the reads that a reader has added up without reporting them."""
        spent, end, count = reader.unseen_seconds, reader.unseen_until, reader.unseen_elements
        reader.unseen_seconds, reader.unseen_elements = 0.0, 0
        self._note_wait(iterator.observed_as, spent, reads=True)
        self.reads_of(dataset).pending += count
        if self.is_output(iterator):
            self.entered(end - spent)
            self.left(end, spent)
        else:
            self.sampler.seen = max(self.sampler.seen, end)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Count the time of this context as start-up: workers are started only once."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.consumer.start += spent
            timer.exclude(spent)

    def waiting(
        self,
        iterator: Any,
        dataset: Any = None,
        worker: int | None = None,
        *,
        reads: bool = False,
    ) -> contextlib.AbstractContextManager[None]:
        """Measure waiting for threads or workers, or reading; too costly to use per element."""
        if worker is not None and self.consumer.is_first_of(worker):
            return self.starting()
        return self._waiting(iterator, dataset, reads)

    @contextlib.contextmanager
    def _waiting(self, iterator: Any, dataset: Any, reads: bool) -> Iterator[None]:
        start = time.perf_counter()
        is_output = iterator is not None and self.is_output(iterator)
        if is_output:
            self.entered(start)
        began = ThreadTimes.now() if timer.deep else None
        try:
            yield
        finally:
            end = time.perf_counter()
            spent = end - start
            self._note_wait(iterator.observed_as if dataset is None else dataset, spent, reads)
            timer.exclude(spent)
            if began is not None:
                timer.thread.add(ThreadTimes.now().without(began))
            if is_output:
                self.left(end, spent)
            else:
                self.pause(end)

    # Results.

    def snapshot(self) -> dict[str, Any]:
        """Return the measurements so far, as plain values."""
        # A worker reports from another thread too, which must not interfere with a read.
        here = self.aims is None or threading.get_ident() == self._thread
        for iterator in list(self._iterators) if here else ():
            catch_up = getattr(iterator, "catch_up", None)
            if catch_up is not None:
                catch_up()
        consumer = self.consumer
        seen = consumer.measured_wait + consumer.loop
        factor, more = self.sampler.factors(consumer.left_at, self._handed_out(), seen)
        with self.lock:
            stages = {place: copy.copy(times) for place, times in list(self.stages.items())}
            totals = {place: copy.copy(total) for place, total in self.totals.items()}
        extrapolate(stages, factor, more, list(self.reads.items()))
        return {
            "wait": consumer.wait(factor),
            "measured_wait": consumer.measured_wait,
            "loop": consumer.loop * factor + self._since_left(),
            "start": consumer.start,
            "pid": os.getpid(),
            "profiler_port": profiler.port,
            "cpu": consumer.cpu,
            "queued": queued_for_each_second(),
            "stages": stages,
            "totals": totals,
            "inside": dict(self.ids.inside),
            "workers": dict(self.workers),
        }

    def holder(self) -> Any:
        """Return what reads from the last stage for the training loop; None if it is gone."""
        return self._holder()

    def iterators(self) -> list[Any]:
        """Return the iterators of the stages that run in this process."""
        return list(self._iterators)

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Return for each stage that reads ahead how many elements are ready, and the most."""
        found: dict[str, tuple[int, int]] = {}
        for iterator in list(self._iterators):
            ready, most = (
                getattr(iterator, "ready_count", None),
                getattr(iterator, "buffer_size", 0),
            )
            if ready is not None and most:
                found[self.place_of(iterator.observed_as)] = ready, most
        return found

    def worker_times(self) -> list[dict[str, Any]]:
        """Return for each worker its process, and the seconds that it computed and waited."""
        return [
            {
                "stage": place,
                "worker": worker,
                "pid": pid,
                "cpu": heard["cpu"],
                "wait": heard["wait"],
            }
            for (place, worker, pid), heard in sorted(self.workers.items(), key=lambda one: one[0])
        ]

    def _since_left(self) -> float:
        """Return the loop's own time since its last wait, if it has taken elements since then."""
        away = time.perf_counter() - self.consumer.left_at
        if not self.is_alone or not self.consumer.left_at or self.consumer.is_idle(away):
            return 0.0
        return away if getattr(self._holder(), "is_within_chunk", False) else 0.0


def stage_name(dataset: Any, iterator: Any) -> str:
    """Return the name of a stage: that of its iterator, if it has one."""
    name = str(iterator)
    has_workers = getattr(dataset, "opens_later", False) and runs_ahead_of(dataset) is not None
    return str(dataset) if has_workers or name == type(iterator).__name__ else name


def _nothing() -> None:
    return None
