"""Whether a run is watched, and for what: then every stage has a clock for good."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from wholegrain._core.config import config
from wholegrain._core.events import is_traced
from wholegrain._core.log import name_worker
from wholegrain.options import DatasetOptions, ExecutionTrackingMode

if TYPE_CHECKING:
    from wholegrain._graph.iterator import DatasetIterator

_HAS_TELEMETRY = os.environ.get("ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY", "").lower() == "true"


class Aims(NamedTuple):
    """What a run is watched for.

    Args:
        timing: An execution summary.
        debug: Logging it from time to time.
        visualization: Logging the graph at the first element; None if not.
        telemetry: Metrics for Prometheus.
        annotate: Events in a trace of the jax profiler.
        profile_workers: Worker processes in such a trace.
    """

    timing: bool = False
    debug: bool = False
    visualization: str | None = None
    telemetry: bool = False
    annotate: bool = False
    profile_workers: bool = False

    @property
    def all_stages(self) -> bool:
        """Whether every stage counts, or those that metrics are about are enough."""
        return self.timing or self.visualization is not None or self.annotate


NOTHING = Aims()

_OPTIONS = ("py_debug_mode", "enable_multiprocess_worker_profiling")
_DRAWING = "py_dataset_visualization_output_dir"


class Watch:
    """Opens the iterators of a run that is watched; see `wholegrain._graph.watch`."""

    def open(self, node: Any) -> DatasetIterator[Any]:
        """Open an iterator of a stage."""
        raise NotImplementedError


def aims_of(options: DatasetOptions) -> Aims:
    """Return what a run with these options is to be watched for, here and now."""
    debug = bool(config.py_debug_mode)
    profile_workers = False
    if config.enable_multiprocess_worker_profiling:
        from wholegrain._observe import profiler

        profile_workers = profiler.is_wanted()
    return Aims(
        timing=debug or options.execution_tracking_mode is ExecutionTrackingMode.STAGE_TIMING,
        debug=debug,
        visualization=config.py_dataset_visualization_output_dir,
        telemetry=_HAS_TELEMETRY,
        annotate=profile_workers or is_traced(),
        profile_workers=profile_workers,
    )


def begin(dataset: Any, options: DatasetOptions) -> Watch | None:
    """Return what watches a run that begins; None if nobody wants to."""
    if (
        options.execution_tracking_mode is ExecutionTrackingMode.DISABLED
        and not _HAS_TELEMETRY
        and not any(map(config.get_or_default, _OPTIONS))
        and config.get_or_default(_DRAWING) is None
        and not is_traced()
    ):
        return None
    aims = aims_of(options)
    if aims == NOTHING:
        return None
    from wholegrain._graph.watch import Run  # Few need it.

    return Run(dataset, aims)


def set_up_worker(index: int) -> None:
    """Set up what watching needs in a worker process, which nobody watches directly."""
    config.update("py_traceback_filtering", "off")  # The main process does it, and sees all.
    name_worker(index)
