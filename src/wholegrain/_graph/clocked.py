"""Reads a MapDataset, with clocks around its stages for a sample of the chunks."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain._core import events
from wholegrain._core.elements import nbytes
from wholegrain._core.failure import (
    Failure,
    PartlyFailed,
    can_be_recorded,
    is_anything_to_raise,
    joined,
    raising_once,
    to_raise_once,
)
from wholegrain._core.interruption import is_interruption
from wholegrain._core.stack import Empty
from wholegrain._core.tolerated import raising, read_alone
from wholegrain._core.types import Indices, T
from wholegrain._graph import fusion
from wholegrain._graph.chunks import for_each, raise_failure, read_after
from wholegrain._graph.kinds import FunctionTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.timed_dataset import TimedMapDataset
from wholegrain._observe.clock import Clock, Started, timer
from wholegrain._observe.observed import Observed
from wholegrain._observe.times import Times
from wholegrain._read.waiting import ThreadTimes, voluntary_switches

Read = Callable[..., Sequence[Any]]

_ONE_IN = 512
"""One quick chunk in so many is measured, and a few of the first ones."""

_SLOW_ELEMENT_S = 20e-6
"""If elements are slower than this, chunks are measured as often as `_MOST_COST` allows."""

_SLOW_STEP_S = 100e-6
"""If elements are slower than this, CPU time is measured per function; it needs a system call."""

_STAGE_COST_S = 40e-6
"""The cost of the clocks of a stage, which read the time in the run queue from a file."""

_MOST_COST = 0.002
"""The share of the reading time that clocks may cost."""

_FIRST_AFTER_S = 2e-3
"""When the first chunk is measured: the clocks would cost a short run more than its elements."""

_SIZES_EVERY = 8

_SAMPLE = 64
"""How many elements of a large chunk are measured at each function."""


def reading(dataset: MapDataset[Any], observed: Observed | None) -> Read:
    """Return a function that reads the elements of a dataset in a range of positions."""
    if observed is not None and observed.is_on and observed.aims is None:
        return ClockedReader(dataset, observed).read
    is_tracked = isinstance(dataset, TimedMapDataset)
    return functools.partial(_read_tracked if is_tracked else _read, dataset)


def _read_tracked(dataset: MapDataset[Any], first: int, last: int) -> Sequence[Any]:
    """Read a chunk of a dataset with clocks; its reader counts the time of reading by itself."""
    with timer.apart(timer.deep):
        return _read(dataset, first, last)


def _read(
    dataset: MapDataset[Any], first: int, last: int, empty: Empty | None = None
) -> Sequence[Any]:
    """Read a chunk. Only interruptions are raised; other exceptions are recorded in the chunk.

    A chunk of one element is read into memory from `empty`, if that is given.
    """
    event = events.begin_read(dataset, first)
    try:
        chunk: Sequence[Any]
        if last - first == 1:
            if empty is None:
                chunk = [read_alone(dataset.getitem, first)]
            else:
                chunk = [read_alone(dataset.getitem_into, first, empty)]
            if type(chunk[0]) is Failure:
                chunk = PartlyFailed(chunk)
        else:
            chunk = dataset.getitems(np.arange(first, last))
    except BaseException as error:
        if not can_be_recorded(error):
            to_raise_once()  # Discards the errors of a chunk that is not returned.
            raise
        if last - first == 1:
            chunk = PartlyFailed([Failure(error, dataset, first)])
        else:
            places = range(first, last)
            chunk = read_after(error, raising(dataset.getitem), places, dataset, places)
    finally:
        events.end(event)
    return raising_once(chunk) if is_anything_to_raise() else chunk


class ClockedReader:
    """Reads chunks of a MapDataset, some of them with clocks.

    A measurement also counts for the unmeasured chunks since the previous measurement.

    Args:
        dataset: The dataset to read.
        observed: Where to record the times.
    """

    def __init__(self, dataset: MapDataset[Any], observed: Observed) -> None:
        self._dataset = dataset
        self._observed = observed
        self._clocked: MapDataset[Any] | None = None
        self._reads = observed.reads_of(dataset)
        self._is_first = True
        self._probes = 0
        self._clocked_after = 0  # Elements until the next measurement.
        self._slow_steps = False

    def read(self, first: int, last: int, empty: Empty | None = None) -> Sequence[Any]:
        """Read the elements at positions `first..last - 1`.

        A chunk of one element is read into memory from `empty`, if that is given.
        """
        if self._is_first:
            self._is_first = False  # Not measured, because it opens files.
            soon = time.perf_counter() + _FIRST_AFTER_S
            self._reads.not_before = max(self._reads.not_before, soon)
        elif self._reads.pending >= self._clocked_after and (
            not self._reads.not_before or time.perf_counter() >= self._reads.not_before
        ):
            return self._read_clocked(first, last, empty)
        self._reads.pending += last - first
        return _read(self._dataset, first, last, empty)

    def _read_clocked(self, first: int, last: int, empty: Empty | None) -> Sequence[Any]:
        if self._clocked is None:
            try:
                self._clocked = _twin(self._dataset, self._observed)
            except Exception as error:  # A stage cannot be copied: measure the graph as one stage.
                if is_interruption(error):
                    raise
                clock = _ChunkClock(self._observed.place_of(self._dataset))
                self._clocked = TimedMapDataset(self._dataset, clock)
        self._probes += 1
        notes = _Notes(self._slow_steps, self._probes % _SIZES_EVERY == 1, self._probes)
        timer.notes = notes
        start = time.perf_counter()
        try:
            with timer.apart(deep=True):
                chunk = _read(self._clocked, first, last, empty)
        finally:
            timer.notes = None
        seconds, count = time.perf_counter() - start, last - first
        most = max((times.elements for _, times in notes.found), default=count)
        is_slow = seconds > most * _SLOW_ELEMENT_S
        self._reads.not_before = 0.0
        if is_slow:
            cost = _STAGE_COST_S * (len(notes.found) + 2)
            self._reads.not_before = start + cost / _MOST_COST
        self._slow_steps = seconds > most * _SLOW_STEP_S
        with self._observed.lock:
            pending, self._reads.pending = self._reads.pending, 0
            self._note(notes, 1 + pending / count)
            self._reads.noted += count + pending
        self._clocked_after = 0 if is_slow else min(4 * self._reads.noted, _ONE_IN * count)
        return chunk

    def _note(self, notes: _Notes, factor: float) -> None:
        """Add the measurements, scaled to the elements since the previous measurement."""
        for place, times in notes.found:
            self._observed.stages.setdefault(place, Times()).add(times, factor)


class _Notes:
    """The measurements of one read in one thread."""

    def __init__(self, slow_steps: bool, sizes: bool, number: int = 0) -> None:
        self.number = number
        self.slow_steps = slow_steps
        self.sizes = sizes
        self.found: list[tuple[str, Times]] = []

    def note(self, place: str, own: float, computing: float, elements: Any) -> None:
        """Record the own time of a stage for a chunk."""
        times = Times(own=own, computing=computing)
        if elements is not None:
            count = len(elements)
            if count:
                missing = 0
                if not isinstance(elements, np.ndarray):
                    missing = sum(element is None for element in elements)
                times.elements = count - missing
                if self.sizes and elements[0] is not None:
                    times.size = nbytes(elements[0])
        self.found.append((place, times))


def tracked(dataset: MapDataset[T], observed: Observed) -> MapDataset[T]:
    """Return a dataset with a clock around every stage if the run is tracked; else as it is."""
    return dataset if observed.aims is None else _twin(dataset, observed)


def _twin(dataset: MapDataset[Any], observed: Observed) -> MapDataset[Any]:
    """Return the same graph with a clock around every stage."""
    is_tracked = observed.aims is not None
    if not is_tracked and _is_function(dataset):
        row: list[Any] = [dataset]
        while _is_function(row[-1].parent):
            row.append(row[-1].parent)
        places = [observed.place_of(stage) for stage in row]
        return _ClockedRow(row[::-1], places[::-1], _twin(row[-1].parent, observed))
    clock = _clock_of(dataset, observed)
    # A tracked run measures each stage. For a sample, the user's classes are not copied: the time
    # of the stages upstream counts as theirs.
    if dataset.parents and (is_tracked or _is_ours(dataset)):
        dataset = dataset.with_parents([_twin(parent, observed) for parent in dataset.parents])
    return dataset if clock is None else TimedMapDataset(dataset, clock)


def _clock_of(dataset: MapDataset[Any], observed: Observed) -> Clock | None:
    if observed.aims is None:
        return _ChunkClock(observed.place_of(dataset), not observed.ids.passes_on(dataset))
    from wholegrain._observe.tracked_clock import clock_of_dataset  # Rarely used.

    return clock_of_dataset(observed, dataset)


def _is_function(dataset: Any) -> bool:
    return isinstance(dataset, FunctionTransform) and _is_ours(dataset)


def _is_ours(dataset: Any) -> bool:
    return type(dataset).__module__.startswith("wholegrain.")


class _ChunkClock:
    """The clock around a stage while a chunk is read. It also counts elements, by default."""

    def __init__(self, place: str, counts: bool = True) -> None:
        self._place = place
        self._counts = counts

    def start(self) -> Started | None:
        """Begin a call; return None in a thread of the source's own, which is not measured."""
        return None if timer.notes is None else timer.begin()

    def stop(self, started: Started | None, elements: Sequence[Any]) -> None:
        """End a call that produced `elements`."""
        if started is None or timer.notes is None:
            return
        own = timer.end(started).thread or ThreadTimes()
        # Without the time in the run queue, because this sample stands for many chunks.
        seconds = max(0.0, own.wall - own.queued)
        counted = elements if self._counts else None
        timer.notes.note(self._place, seconds, seconds * own.computing_share, counted)

    def take_back(self, count: int) -> None:
        """Do nothing: a MapDataset has no `put_back`."""


class _ClockedRow(MapDataset[T]):
    """Adjacent maps and filters, with the clock read after each function.

    Each element passes through all functions before the next one, as it does without clocks.
    """

    def __init__(
        self, stages: list[FunctionTransform[Any]], places: list[str], parent: MapDataset[Any]
    ) -> None:
        super().__init__(parent)
        self._stages = stages
        self._places = places

    def __len__(self) -> int:
        return len(self._stages[-1])

    def __getitem__(self, index: Any) -> Any:
        return self._stages[-1][index]

    def getitem(self, index: int) -> T | None:
        (result,) = self._pass([self._parent.getitem(index)], [index])
        if type(result) is Failure:
            raise_failure(result)
        return result  # type: ignore[no-any-return]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        return self._pass(self._parent.getitems(indices), indices)

    def _pass(self, elements: Sequence[Any], indices: Any) -> Sequence[Any]:
        notes = timer.notes
        if notes is None:
            notes = _Notes(False, False)  # In a thread of the source's own: discarded.
        row = _Row(self._stages, notes.slow_steps)
        begin = ThreadTimes.now()
        results = self._sampled(row, elements, indices, notes.number)
        whole = ThreadTimes.now().without(begin)
        timer.thread.add(whole)
        share = max(0.0, whole.wall - whole.queued) / max(sum(row.spent), 1e-9)
        # The share of the time off the processor that was waiting, and not the run queue.
        idle = sum(row.spent) - sum(row.computing)
        waited = max(0.0, min(1.0, (whole.wall - whole.cpu - whole.queued) / max(idle, 1e-9)))
        for number, place in enumerate(self._places):
            own, computing = row.spent[number] * share, whole.computing_share
            if row.slow:
                busy = row.computing[number]
                computing = busy / max(busy + waited * (row.spent[number] - busy), 1e-9)
            notes.note(place, own, own * computing, None)
            times = notes.found[-1][1]
            times.elements = row.made[number]
            if notes.sizes and row.samples[number] is not None:
                times.size = nbytes(row.samples[number])
        return results

    def _sampled(self, row: _Row, elements: Any, indices: Any, number: int) -> Sequence[Any]:
        """Call the functions, with the clock for all elements or for a sample of a large chunk."""
        is_large = len(elements) >= 8 * _SAMPLE and type(elements) in (list, tuple, np.ndarray)
        if not is_large or any(stage.kind != fusion.MAP for stage in self._stages):
            return self._run(row.run, row, elements, indices)
        start = number * _SAMPLE % (len(elements) - _SAMPLE)
        parts = slice(0, start), slice(start, start + _SAMPLE), slice(start + _SAMPLE, None)
        runs = self._unclocked, row.run, self._unclocked
        each = zip(runs, parts, strict=True)
        results = joined([self._run(run, row, elements[part], indices[part]) for run, part in each])
        made = len(results) - sum([element is None for element in results])
        row.made = [made] * len(row.made)
        return results

    def _unclocked(self, results: list[Any], elements: Sequence[Any]) -> None:
        kinds = "".join(stage.kind for stage in self._stages)
        functions = [stage._function for stage in self._stages]
        fusion.one_pass(kinds)(results, elements, *functions)

    def _run(self, run: Any, row: _Row, elements: Sequence[Any], indices: Any) -> Sequence[Any]:
        def which(error: BaseException) -> Any:
            step = fusion.failed_step(error) if run == self._unclocked else row.at
            return self._stages[step]

        return for_each(run, self, indices, elements, which=which)

    def source_index(self, index: int) -> int:
        return self._stages[-1].source_index(index)

    @property
    def sparse(self) -> bool:
        return self._stages[-1].sparse

    @property
    def _element_spec(self) -> Any:
        return self._stages[-1]._element_spec

    def __str__(self) -> str:
        return str(self._stages[-1])


class _Row:
    """Calls the functions of adjacent stages, and reads the clock after each call.

    Args:
        stages: The stages whose functions are called.
        slow: Whether to measure the CPU time of the thread too, which costs more.
    """

    def __init__(self, stages: list[FunctionTransform[Any]], slow: bool) -> None:
        self._steps = [(stage._function, stage.kind == fusion.MAP) for stage in stages]
        self.slow = slow
        self.spent = [0.0] * len(stages)
        self.computing = [0.0] * len(stages)
        self.made = [0] * len(stages)
        self.samples: list[Any] = [None] * len(stages)
        self.at = 0  # The function that was called last.

    def run(self, results: list[Any], elements: Sequence[Any]) -> None:
        """Append the result for each element."""
        steps, slow, clock = self._steps, self.slow, time.perf_counter
        spent, computing, made, samples = self.spent, self.computing, self.made, self.samples
        last, cpu_last, switches_last = clock(), time.thread_time(), voluntary_switches()
        for x in elements:
            if x is not None:
                for number, (function, is_map) in enumerate(steps):
                    self.at = number
                    value = function(x)
                    now = clock()
                    took, last = now - last, now
                    spent[number] += took
                    if slow:
                        cpu, switched = time.thread_time(), voluntary_switches()
                        waited = switched > switches_last
                        computing[number] += cpu - cpu_last if waited else took
                        cpu_last, switches_last = cpu, switched
                    x = value if is_map else (x if value else None)
                    if x is None:
                        break
                    made[number] += 1
                    samples[number] = x
            results.append(x)
