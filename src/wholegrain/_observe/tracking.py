"""Decides whether a run is tracked: then every stage has a clock for the whole run."""

from __future__ import annotations

import os
from typing import NamedTuple

from wholegrain._core.config import config
from wholegrain._core.events import is_traced
from wholegrain._core.log import name_worker
from wholegrain.options import DatasetOptions, ExecutionTrackingMode

_HAS_TELEMETRY = os.environ.get("ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY", "").lower() == "true"

_OPTIONS = ("py_debug_mode", "enable_multiprocess_worker_profiling")
_DRAWING = "py_dataset_visualization_output_dir"


class Aims(NamedTuple):
    """What a run is tracked for.

    Args:
        timing: Whether to collect an execution summary.
        debug: Whether to log the summary every minute.
        visualization: If not None, log the graph at the first element.
        telemetry: Whether to count metrics for Prometheus.
        annotate: Whether to add events to a trace of the jax profiler.
        profile_workers: Whether to include worker processes in such a trace.
    """

    timing: bool = False
    debug: bool = False
    visualization: str | None = None
    telemetry: bool = False
    annotate: bool = False
    profile_workers: bool = False

    @property
    def all_stages(self) -> bool:
        """Whether all stages need clocks, not only those with metrics."""
        return self.timing or self.visualization is not None or self.annotate


def has_telemetry() -> bool:
    """Whether metrics for Prometheus are counted."""
    return _HAS_TELEMETRY


def aims_of(options: DatasetOptions) -> Aims | None:
    """Return what to track a new run for; None if it is not tracked."""
    if (
        options.execution_tracking_mode is ExecutionTrackingMode.DISABLED
        and not _HAS_TELEMETRY
        and not any(map(config.get_or_default, _OPTIONS))
        and config.get_or_default(_DRAWING) is None
        and not is_traced()
    ):
        return None
    debug = bool(config.py_debug_mode)
    profile_workers = False
    if config.enable_multiprocess_worker_profiling:
        from wholegrain._observe import profiler  # Rarely used.

        profile_workers = profiler.is_wanted()
    aims = Aims(
        timing=debug or options.execution_tracking_mode is ExecutionTrackingMode.STAGE_TIMING,
        debug=debug,
        visualization=config.py_dataset_visualization_output_dir,
        telemetry=_HAS_TELEMETRY,
        annotate=profile_workers or is_traced(),
        profile_workers=profile_workers,
    )
    return None if aims == Aims() else aims


def set_up_worker(index: int) -> None:
    """Configure tracebacks and logging of a worker process."""
    config.update("py_traceback_filtering", "off")  # The main process filters, and gets all frames.
    name_worker(index)
