"""The output of a tracked pipeline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wholegrain._core.log import say
from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.timed import ForwardingIterator
from wholegrain._observe.prometheus import NEXT_DURATION, Metric

if TYPE_CHECKING:
    from wholegrain._graph.watch import Run

_LOG_EVERY_S = 60.0
_LOOK_EVERY_S = 1.0


class WatchedOutput(ForwardingIterator[T]):
    """Yields the elements of a tracked pipeline, and logs its graph and its summaries."""

    def __init__(self, iterator: DatasetIterator[T], run: Run) -> None:
        super().__init__(iterator)
        self.run = self.watched_run = run
        """The tracked run."""
        self._is_drawn = run.aims.visualization is None
        self._log_at = time.monotonic() + _LOG_EVERY_S if run.aims.debug else float("inf")
        self.metrics: list[Metric] = [NEXT_DURATION] if run.aims.telemetry else []
        """Metrics that observe the time of each `next`."""

        self._registry = None
        self._look_at = float("inf")
        if run.aims.profile_workers:
            from wholegrain._observe.profiler import Registry

            self._registry, self._look_at = Registry(), 0.0

    def __next__(self) -> T:
        if not self._is_drawn:
            self._refuse_folder()
        started = time.perf_counter_ns()
        element = next(self._iterator)
        for metric in self.metrics:
            metric.observe(time.perf_counter_ns() - started)
        self._after_elements()
        return element

    def take(self, count: int) -> list[T]:
        if not self._is_drawn:
            self._refuse_folder()
        elements = self._iterator.take(count)
        self._after_elements()
        return elements

    def _after_elements(self) -> None:
        if not self._is_drawn:
            from wholegrain._observe.visualize import draw

            self._is_drawn = True
            say(draw(self.run))
        now = time.monotonic()
        if now >= self._look_at and self._registry is not None:
            self._look_at = now + _LOOK_EVERY_S
            self._registry.look(list(self.run.folders.values()))
        if now >= self._log_at:
            from wholegrain._observe.summary import execution_summary, pretty_format_summary

            self._log_at = now + _LOG_EVERY_S
            summary = pretty_format_summary(execution_summary(self.run))
            say(f"Execution summary:\n{summary}")

    def _refuse_folder(self) -> None:
        folder = self.run.aims.visualization
        if folder:
            raise NotImplementedError(
                "`py_dataset_visualization_output_dir` takes '', which logs the graph of the"
                f" pipeline, but got {folder!r}: writing it to a directory is not implemented."
            )
