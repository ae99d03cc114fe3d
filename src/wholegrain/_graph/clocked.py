"""Reads a MapDataset, with clocks around its stages for a sample of the chunks."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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
from wholegrain._core.types import Indices, T
from wholegrain._graph import fusion
from wholegrain._graph.chunks import for_each, raise_failure, read_after
from wholegrain._graph.kinds import FunctionTransform
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.timed_dataset import TimedMapDataset
from wholegrain._observe.clock import Started, timer
from wholegrain._observe.observed import Observed, is_on
from wholegrain._observe.times import Times
from wholegrain._read.waiting import ThreadTimes, voluntary_switches

Read = Callable[[int, int], Sequence[Any]]

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

_SIZES_EVERY = 8

_SAMPLE = 64
"""How many elements of a large chunk are measured at each function."""


def reading(dataset: MapDataset[Any], observed: Observed | None) -> Read:
    """Return a function that reads the elements of a dataset in a range of positions."""
    if observed is not None and is_on() and not observed.is_watched:
        return ClockedReader(dataset, observed).read
    return functools.partial(_read, dataset)


def _read(dataset: MapDataset[Any], first: int, last: int) -> Sequence[Any]:
    """Read a chunk. Only interruptions are raised; other exceptions are recorded in the chunk."""
    try:
        chunk: Sequence[Any]
        if last - first == 1:
            chunk = [dataset.getitem(first)]
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
            chunk = read_after(error, dataset.getitem, places, dataset, places)
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
        self._not_before = 0.0  # For slow elements; several threads may read.
        self._slow_steps = False

    def read(self, first: int, last: int) -> Sequence[Any]:
        """Read the elements at positions `first..last - 1`."""
        if self._is_first:
            self._is_first = False  # Not measured, because it opens files.
        elif self._reads.pending >= self._clocked_after and (
            not self._not_before or time.perf_counter() >= self._not_before
        ):
            return self._read_clocked(first, last)
        self._reads.pending += last - first
        return _read(self._dataset, first, last)

    def _read_clocked(self, first: int, last: int) -> Sequence[Any]:
        if self._clocked is None:
            try:
                self._clocked = _with_clocks(self._dataset, self._observed)
            except Exception:  # A stage cannot be copied: measure the graph as one stage.
                self._clocked = _timed(self._dataset, self._observed.place_of(self._dataset))
        self._probes += 1
        notes = _Notes(self._slow_steps, self._probes % _SIZES_EVERY == 1, self._probes)
        _current.notes = notes
        start = time.perf_counter()
        try:
            with timer.apart():
                chunk = _read(self._clocked, first, last)
        finally:
            _current.notes = None
        seconds, count = time.perf_counter() - start, last - first
        most = max((times.elements for _, times in notes.found), default=count)
        is_slow = seconds > most * _SLOW_ELEMENT_S
        self._not_before = 0.0
        if is_slow:
            cost = _STAGE_COST_S * (len(notes.found) + 2)
            self._not_before = start + cost / _MOST_COST
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
            found = self._observed.stages.setdefault(place, Times())
            found.own += times.own * factor
            found.computing += times.computing * factor
            found.elements += times.elements * factor
            found.size = times.size or found.size


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


class _Current(threading.local):
    """Where the clocks of this thread write."""

    notes: _Notes | None = None


_current = _Current()


def _with_clocks(dataset: MapDataset[Any], observed: Observed) -> MapDataset[Any]:
    """Return the same graph with a clock around every stage.

    Classes of users are not copied: the time of the stages upstream counts as theirs.
    """
    place = observed.place_of(dataset)
    if isinstance(dataset, FunctionTransform) and _is_ours(dataset):
        row = [dataset]
        while isinstance(row[-1].parent, FunctionTransform) and _is_ours(row[-1].parent):
            row.append(row[-1].parent)
        places = [observed.place_of(stage) for stage in row]
        return _ClockedRow(row[::-1], places[::-1], _with_clocks(row[-1].parent, observed))
    if _is_ours(dataset) and dataset.parents:
        # A slice that sharding inserted downstream of a stage has the id of that stage, and passes
        # its elements on.
        counts = all(observed.place_of(parent) != place for parent in dataset.parents)
        parents = [_with_clocks(parent, observed) for parent in dataset.parents]
        return _timed(dataset.with_parents(parents), place, counts)
    return _timed(dataset, place)


def _timed(dataset: MapDataset[Any], place: str, counts: bool = True) -> MapDataset[Any]:
    return TimedMapDataset(dataset, _ChunkClock(place, counts))


def _is_ours(dataset: Any) -> bool:
    return type(dataset).__module__.startswith("wholegrain.")


class _ChunkClock:
    """The clock around a stage while a chunk is read. It also counts elements, by default."""

    def __init__(self, place: str, counts: bool = True) -> None:
        self._place = place
        self._counts = counts

    def start(self) -> Started | None:
        """Begin a call; return None in a thread of the source's own, which is not measured."""
        return None if _current.notes is None else timer.begin()

    def stop(self, started: Started | None, elements: Sequence[Any]) -> None:
        """End a call that produced `elements`."""
        if started is None or _current.notes is None:
            return
        own = timer.end(started).thread or ThreadTimes()
        # Without the time in the run queue, because this sample stands for many chunks.
        seconds = max(0.0, own.wall - own.queued)
        counted = elements if self._counts else None
        _current.notes.note(self._place, seconds, seconds * own.computing_share, counted)

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
        notes = _current.notes
        if notes is None:
            notes = _Notes(False, False)  # In a thread of the source's own: discarded.
        row = _Row(self._stages, notes.slow_steps)
        begin = ThreadTimes.now()
        if self._can_be_sampled(elements):
            start = notes.number * _SAMPLE % (len(elements) - _SAMPLE)
            parts = slice(0, start), slice(start, start + _SAMPLE), slice(start + _SAMPLE, None)
            runs = self._unclocked, row.run, self._unclocked
            results = joined(
                [
                    self._run(run, row, elements[part], indices[part])
                    for run, part in zip(runs, parts, strict=True)
                ]
            )
            made = len(results) - sum([element is None for element in results])
            row.made = [made] * len(row.made)
        else:
            results = self._run(row.run, row, elements, indices)
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

    def _can_be_sampled(self, elements: Sequence[Any]) -> bool:
        """Return whether to measure a sample: the chunk is large and no stage drops elements."""
        return (
            len(elements) >= 8 * _SAMPLE
            and type(elements) in (list, tuple, np.ndarray)
            and all(stage.kind == fusion.MAP for stage in self._stages)
        )

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
