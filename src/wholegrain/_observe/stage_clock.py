"""The clock around a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wholegrain._observe.clock import Spent, Started, timer
from wholegrain._observe.observed import Observed


class Call(NamedTuple):
    started: Started
    calls: int
    is_step: bool
    is_output: bool


class StageClock:
    """Measures the own time of a stage, without the stages that it calls.

    Args:
        observed: The measurements of the run.
        dataset: The stage.
        keeps_time: Whether the stage measures by itself how long the training loop waits for it.
    """

    def __init__(self, observed: Observed, dataset: Any, keeps_time: bool = False) -> None:
        self._observed = observed
        self._dataset = dataset
        self._keeps_time = keeps_time

    def start(self) -> Call:
        """Begin a call; return a value to pass to `stop`."""
        sampler, is_step = self._observed.sampler, not timer.depth
        calls = sampler.calls
        if is_step:
            timer.deep = sampler.is_deep()
        started = timer.begin()
        is_output = not self._keeps_time and self._observed.is_last(self._dataset)
        if is_output:
            self._observed.entered(started.at)
        return Call(started, calls, is_step, is_output)

    def stop(self, started: Call, elements: Sequence[Any]) -> None:
        """End a call that produced `elements`."""
        self.note(started, elements)

    def note(self, started: Call, elements: Sequence[Any]) -> Spent:
        """End a call that produced `elements`; return its times."""
        observed = self._observed
        spent = timer.end(started.started)
        observed.note_call(self._dataset, spent, len(elements))
        if started.is_output:
            observed.left(started.started.at + spent.elapsed, spent.elapsed)
        if started.is_step:
            timer.deep = False
            observed.after_step(spent.elapsed, observed.sampler.calls - started.calls)
        return spent

    def take_back(self, count: int) -> None:
        """Count elements as not made: they were put back."""
        self._observed.times_of(self._dataset).elements -= count
