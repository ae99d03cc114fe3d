"""The output of a tracked run."""

from __future__ import annotations

import time

from wholegrain._core.log import say
from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.timed import ForwardingIterator, with_clocks
from wholegrain._observe.prometheus import NEXT_DURATION, Metric
from wholegrain._observe.summary import execution_summary, pretty_format_summary
from wholegrain._observe.visualize import draw

_LOG_EVERY_S = 60.0
_LOOK_EVERY_S = 1.0


def tracked(output: DatasetIterator[T]) -> TrackedOutput[T]:
    """Return the last stage of a tracked run, with a clock around each stage."""
    return TrackedOutput(with_clocks(output))


class TrackedOutput(ForwardingIterator[T]):
    """Yields the elements of a tracked run, and logs its graph and its summaries."""

    def __init__(self, iterator: DatasetIterator[T]) -> None:
        super().__init__(iterator)
        self.observed, self.observed_as = iterator.observed, iterator.observed_as
        aims = self._aims = self.observed.aims
        self._is_drawn = aims.visualization is None
        self._log_at = time.monotonic() + _LOG_EVERY_S if aims.debug else float("inf")
        self.metrics: list[Metric] = [NEXT_DURATION] if aims.telemetry else []
        """Metrics that observe the time of each `next`."""

        self._registry = None
        self._look_at = float("inf")
        if aims.profile_workers:
            from wholegrain._observe.profiler import Registry

            self._registry, self._look_at = Registry(), 0.0

    @property
    def takes_back(self) -> bool:
        return False  # It has to see each element pass.

    def __next__(self) -> T:
        if not self._is_drawn:
            self._refuse_folder()
        started = time.perf_counter_ns()
        element = next(self._iterator)
        for metric in self.metrics:
            metric.observe(time.perf_counter_ns() - started)
        self._after_element()
        return element

    def _after_element(self) -> None:
        if not self._is_drawn:
            self._is_drawn = True
            say(draw(self))
        now = time.monotonic()
        if now >= self._look_at and self._registry is not None:
            self._look_at = now + _LOOK_EVERY_S
            self.tell_report()
            self._registry.register(self.observed.workers.values())
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            say(f"Execution summary:\n{pretty_format_summary(execution_summary(self))}")

    def _refuse_folder(self) -> None:
        folder = self._aims.visualization
        if folder:
            raise NotImplementedError(
                "`py_dataset_visualization_output_dir` takes '', which logs the graph of the"
                f" pipeline, but got {folder!r}: writing it to a directory is not implemented."
            )
