"""The clock of tracked runs: for execution summaries, metrics and traces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core import events, tree
from wholegrain._core.elements import describe, nbytes
from wholegrain._core.log import logger
from wholegrain._observe import prometheus
from wholegrain._observe.observed import Observed, stage_name
from wholegrain._observe.prometheus import data_of
from wholegrain._observe.shown import READERS, runs_ahead_of
from wholegrain._observe.stage_clock import StageClock
from wholegrain._observe.times import Total

Listener = Callable[[int, Sequence[Any]], None]

_KNOWN_SIZES = (str, bytes, bytearray, int, float, complex, type(None))


def clock_of_iterator(observed: Observed, iterator: Any) -> TrackedClock | None:
    """Return a clock for an iterator of a tracked run; None if nobody needs it."""
    dataset = iterator.observed_as
    ahead = runs_ahead_of(dataset)
    if ahead is None and not observed.aims.all_stages and not observed.is_last(dataset):
        return None
    listeners = []
    if observed.aims.telemetry and ahead == READERS:
        listeners.append(prometheus.ready_listener(iterator))
    category = events.PREPROCESSING if ahead is None else events.PREFETCH
    event = f"{type(iterator).__name__}.__next__", str(iterator), category
    name = stage_name(dataset, iterator)
    return TrackedClock(observed, dataset, name, event, listeners, iterator.keeps_time)


def clock_of_dataset(observed: Observed, dataset: Any) -> TrackedClock | None:
    """Return a clock for a MapDataset of a tracked run; None if nobody needs it."""
    is_source = not dataset.parents
    if not is_source and not observed.aims.all_stages:
        return None
    listeners = []
    if observed.aims.telemetry and getattr(dataset, "_source", None) is not None:
        listeners.append(prometheus.source_listener(dataset))
    category = events.READ if is_source else events.PREPROCESSING
    event = f"{type(dataset).__name__}.__getitem__", str(dataset), category
    return TrackedClock(observed, dataset, str(dataset), event, listeners)


class TrackedClock(StageClock):
    """Measures every call of one stage, and adds it to the totals of the run.

    Args:
        observed: The measurements of the run.
        dataset: The stage.
        stage: The name of the stage.
        event: The names of the event and of the stage in a trace, and the category.
        listeners: Called with the time of each call in nanoseconds, and its elements.
        keeps_time: Whether the stage measures by itself how long the training loop waits for it.
    """

    def __init__(
        self,
        observed: Observed,
        dataset: Any,
        stage: str,
        event: tuple[str, str, str],
        listeners: Sequence[Listener],
        keeps_time: bool = False,
    ) -> None:
        super().__init__(observed, dataset, keeps_time)
        self._stage = stage
        self._event = event
        self._listeners = listeners
        self._total: Total | None = None  # The stage has no id yet while the run is opened.
        self._number = 0
        self._is_ahead = runs_ahead_of(dataset) is not None
        self._counts_bytes = self._passes_on = False

    def _begin_run(self) -> Total:
        ids = self._observed.ids
        place = ids.of(self._dataset)
        self._number = ids.number_of(place)
        self._counts_bytes = ids.feeds_prefetch(place)
        self._passes_on = ids.passes_on(self._dataset)
        total = self._observed.total_of(place)
        if not self._passes_on:
            total.name = self._stage
        return total

    def start(self) -> Any:
        if self._total is None:
            self._total = self._begin_run()
        event = None
        if self._observed.aims.annotate:
            name, stage, category = self._event
            event = events.begin(name, stage, self._number, category)
        return super().start(), event

    def stop(self, started: Any, elements: Sequence[Any]) -> None:
        begin, event = started
        events.end(event)
        made: Sequence[Any] = () if self._passes_on else elements
        spent = self.note(begin, made)
        total = self._total
        assert total is not None
        size = sum(map(_size, made)) if self._counts_bytes else 0
        # All of the time of a stage that runs ahead is waiting for the stages upstream.
        seconds = spent.elapsed if self._is_ahead else max(0.0, spent.own)
        with self._observed.lock:
            total.record(round(seconds * 1e9), len(made), size)
        if not total.spec:
            self._describe(total, made)
        for listener in self._listeners:
            listener(round(spent.elapsed * 1e9), elements)

    def take_back(self, count: int) -> None:
        super().take_back(count)
        if self._total is not None:
            with self._observed.lock:
                self._total.elements -= count

    def _describe(self, total: Total, elements: Sequence[Any]) -> None:
        for element in elements:
            if element is not None:
                if self._counts_bytes:
                    _warn_of_unknown_sizes(element)
                total.spec = repr(describe(element))
                return


def _size(element: Any) -> int:
    return nbytes(data_of(element))


def _warn_of_unknown_sizes(element: Any) -> None:
    """Warn once if an element contains an object of unknown size."""
    for leaf in tree.leaves(data_of(element)):
        if not hasattr(leaf, "nbytes") and not isinstance(leaf, _KNOWN_SIZES):
            _warn_of_type(type(leaf).__name__)


@functools.cache
def _warn_of_type(name: str) -> None:
    if _warn_of_type.cache_info().currsize == 0:
        logger().warning(
            "The memory that an element of type %s takes cannot be estimated: `memory usage` in"
            " the execution summary leaves it out.",
            name,
        )
