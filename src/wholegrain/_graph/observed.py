"""What was seen of one run of a pipeline: how long each stage took, and who waited for whom.

Nothing is counted or timed for each element of a quick pipeline. Clocks are where they cost little:

- around each chunk that is read, each message of a worker, each wait for a thread;
- inside a MapDataset around each stage, for some chunks out of many (`clocked.py`);
- around each stage of the iterators, all the time if an element takes long, else for the
  elements of a chunk now and then (`clocked_iterators.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from wholegrain._engine.waiting import voluntary_switches

_CLOCK_S = 0.8e-6
"""What a clock around a stage costs for each call."""

_SHARE = 0.004
"""Which share of the time clocks may cost."""

_FEW_CALLS = 500
_IDLE_S = 120.0
"""Nobody trains that long on one element: the iterator was left alone meanwhile."""


def is_on() -> bool:
    """Whether runs are observed: not if the environment variable WHOLEGRAIN_REPORT is 0."""
    return os.environ.get("WHOLEGRAIN_REPORT", "1") != "0"


@dataclasses.dataclass(slots=True)
class Times:
    """Seconds of all threads together.

    Args:
        own: At work in the stage itself.
        computing: The part of it in which a processor was busy.
        waited: Waiting for those who run ahead behind the stage.
        reading: Reading a MapDataset right here, instead of having others do it.
        elements: How many elements it made.
        size: Bytes of one element, where one was looked at.
        clocked: Whether `own` was taken with clocks that were on some of the time only.
    """

    own: float = 0.0
    computing: float = 0.0
    waited: float = 0.0
    reading: float = 0.0
    elements: float = 0.0
    size: float = 0.0
    clocked: bool = False


@dataclasses.dataclass(slots=True)
class Reads:
    """What was read of a MapDataset, and the part of it that the clocks in it speak for."""

    elements: float = 0.0
    seconds: float = 0.0
    clocked_elements: float = 0.0
    clocked_seconds: float = 0.0


class Tape(threading.local):
    """What a thread spent in stages that have returned, since the current one was entered."""

    below = 0.0
    below_computing = 0.0
    below_yields = 0
    read = 0.0
    stage: Any = None


tape = Tape()


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
        self.loop = 0.0
        self.start = 0.0  # Until workers had something to give.
        self._start_before = 0.0
        self._started: set[int] = set()
        self.lock = threading.Lock()
        self._output: Callable[[], Any] = _nothing
        self._places: dict[int, str] = {}
        self._named: list[Any] = []  # Kept, so that nothing else gets their numbers.
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        # Clocks around the stages of the iterators.
        self.clocks_on = False
        self.calls = 0
        self.deep = True  # Whether they look at the processor's time too.
        self._on_since = 0.0
        self._on_again = 0.0
        self._seconds_on = 0.0
        self._began = 0.0
        self._seen = 0.0
        self._left_at = 0.0
        self._progress: Any = None

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
        elif self.clocks_on:
            set_clock(iterator, True)

    def be_output(self, iterator: Any, dataset: Any) -> None:
        """Begin to look: all that was opened so far belongs to this iterator."""
        if not is_on():
            return
        self._named.append(dataset)
        self._name_places(dataset, "0")
        self._output = weakref.ref(iterator)
        self._adopt(iterator, dataset)
        self.switch(True, time.perf_counter())

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

    def _name_places(self, dataset: Any, place: str) -> None:
        self._places[id(dataset)] = place
        for number, parent in enumerate(getattr(dataset, "parents", ())):
            self._name_places(parent, f"{place}.{number}")

    def name_share(self, share: Any, whole: Any) -> None:
        """Know the stages of a worker's share as those of the whole that it is a share of."""
        self._named.append(share)
        place = self._places.get(id(whole))
        if place is None or share is whole:
            return
        self._places[id(share)] = place
        parents = getattr(share, "parents", ())
        if type(share) is not type(whole) or len(parents) != len(whole.parents):
            for parent in parents:  # A slice was put between.
                self.name_share(parent, whole)
            return
        for part, parent in zip(parents, whole.parents, strict=True):
            self.name_share(part, parent)

    def place_of(self, dataset: Any) -> str:
        """Return by what a stage is known."""
        return self._places.get(id(dataset)) or f"inside {dataset}"

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

    # Clocks.

    def switch(self, on: bool, now: float) -> None:
        """Put clocks around the stages of the iterators, or take them away."""
        self.clocks_on = on
        self.calls = 0
        self._left_at = 0.0
        if on:
            self._on_since = now
        for iterator in list(self._iterators):
            set_clock(iterator, on)

    def entered(self, now: float) -> None:
        """Note that the training loop asks for an element."""
        if self._left_at:
            gap = now - self._left_at
            if gap < _IDLE_S:
                self.loop += gap
            else:
                self._on_since += gap
                self._began += gap

    def left(self, now: float, seconds: float) -> None:
        """Note that the training loop got an element, and how long that took."""
        self.wait += seconds - (self.start - self._start_before)
        self._start_before = self.start
        self._left_at = now
        self._progress = None

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
        self, iterator: Any, dataset: Any = None, worker: int | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Get what comes next from those who run ahead, or read it; not for every element."""
        if worker is not None and worker not in self._started:
            self._started.add(worker)
            return self.starting()
        return self._waiting(iterator, dataset)

    @contextlib.contextmanager
    def _waiting(self, iterator: Any, dataset: Any) -> Iterator[None]:
        outside = tape.read
        tape.read = 0.0
        start = time.perf_counter()
        is_output = iterator is not None and self.is_output(iterator)
        if is_output:
            self.entered(start)
        cpu, yields = (time.thread_time(), voluntary_switches()) if self.deep else (0.0, 0)
        try:
            yield
        finally:
            end = time.perf_counter()
            spent = end - start
            times = self.times_of(iterator.observed_as if dataset is None else dataset)
            times.reading += tape.read
            times.waited += max(0.0, spent - tape.read)
            tape.read = outside
            tape.below += spent
            if self.deep:
                tape.below_computing += time.thread_time() - cpu
                tape.below_yields += voluntary_switches() - yields
            if is_output:
                self.left(end, spent)
            self.pause(end)

    def pause(self, now: float) -> None:
        """Between two chunks: see whether clocks cost too much, or whether it is their turn."""
        if not self._began:
            self._began = now
        self._seen = now
        if not self.clocks_on:
            if now >= self._on_again:
                self.switch(True, now)
            return
        if self.calls < _FEW_CALLS:
            return
        seconds = now - self._on_since
        cost = self.calls * _CLOCK_S
        if cost > _SHARE * seconds:
            self._seconds_on += seconds
            self.switch(False, now)
            self.deep = False
            self._on_again = now + cost / _SHARE
        else:
            self.deep = cost < _SHARE / 2 * seconds
            self._seconds_on += seconds
            self._on_since, self.calls = now, 0

    def snapshot(self) -> dict[str, Any]:
        """Return what was seen so far, as plain values."""
        now = time.perf_counter()
        seconds_on = self._seconds_on + (now - self._on_since if self.clocks_on else 0.0)
        all_seconds = max(self._seen, self._on_since) - self._began if self._began else 0.0
        factor = max(1.0, all_seconds / seconds_on) if seconds_on and self._seconds_on else 1.0
        with self.lock:
            stages = {
                place: dataclasses.replace(times) for place, times in list(self.stages.items())
            }
        for times in stages.values():
            if times.clocked:
                times.own *= factor
                times.computing *= factor
                times.elements *= factor
        for top, reads in list(self.reads.items()):
            if not reads.clocked_elements:
                continue
            more_elements = reads.elements / reads.clocked_elements
            more_seconds = reads.seconds / max(reads.clocked_seconds, 1e-9)
            for place, times in stages.items():
                if place == top or place.startswith(f"{top}."):
                    times.own *= more_seconds
                    times.computing *= more_seconds
                    times.elements *= more_elements
        return {
            "wait": self.wait * factor,
            "loop": self.loop * factor + self._since_left(now),
            "start": self.start,
            "stages": stages,
            "workers": dict(self.workers),
            "estimated": factor > 1,
        }

    def _since_left(self, now: float) -> float:
        """Return the training loop's time since it last had to wait, if it has gone on since."""
        output = self._output()
        if not self._left_at or output is None or now - self._left_at > _IDLE_S:
            return 0.0
        with contextlib.suppress(Exception):
            if output.progress() != self._progress:
                return now - self._left_at
        return 0.0


def _nothing() -> None:
    return None


def set_clock(iterator: Any, on: bool) -> None:
    """Put a clock around an iterator, or take it away."""
    change = getattr(iterator, "set_clock", None)
    if change is not None:
        change(on)
