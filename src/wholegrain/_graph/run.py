"""What all iterators of one run share: the merged options, the worker and the measurements."""

import contextlib
import copy
import threading
from collections.abc import Iterator
from typing import Any

from wholegrain._observe.observed import Observed
from wholegrain._observe.tracking import Aims
from wholegrain._read.shared_threads import SharedReaders
from wholegrain.options import DatasetOptions


class RunContext:
    """One run of a pipeline.

    Args:
        options: The options of all stages, merged.
        worker_index: The index of this worker.
        worker_count: The number of workers that the elements are distributed over.
        aims: What the run is tracked for; None if it is not tracked.
    """

    def __init__(
        self,
        options: DatasetOptions | None = None,
        worker_index: int = 0,
        worker_count: int = 1,
        aims: Aims | None = None,
    ) -> None:
        self.options = options or DatasetOptions()
        self.worker_index = worker_index
        self.worker_count = worker_count
        self.lanes_here = 1
        """How many lanes read at the same time in this process, and share its threads."""
        self.shared_readers: SharedReaders | None = None
        """What the readers of all components of a mixture share, if there are many."""
        self.account: Any = None
        """Where failures are counted that `on_error` tolerates; None without `on_error`."""
        self.observed = Observed(aims)
        """The measurements of this run."""

    def but(self, **changes: Any) -> "RunContext":
        """Return the same run with some of its attributes changed."""
        other = copy.copy(self)
        vars(other).update(changes)
        return other


_PLAIN_RUN = RunContext()
_local = threading.local()


def current() -> RunContext:
    """Return the run whose iterators are being opened by this thread."""
    context: RunContext | None = getattr(_local, "context", None)
    return _PLAIN_RUN if context is None else context


def is_opening() -> bool:
    """Whether this thread is opening the iterators of a run."""
    return getattr(_local, "context", None) is not None


def leave() -> None:
    """End opening in this thread, in case an interruption kept `entered` from doing so."""
    _local.context = None


@contextlib.contextmanager
def entered(context: RunContext) -> Iterator[RunContext]:
    """Open iterators as part of `context`, now or later in its run."""
    before = getattr(_local, "context", None)
    _local.context = context
    try:
        yield context
    finally:
        _local.context = before


def gather_options(dataset: Any) -> DatasetOptions | None:
    """Merge the options set upstream of `dataset` and on it: the most downstream setting wins."""
    merged: DatasetOptions | None = getattr(dataset, "options", None)
    if not isinstance(merged, DatasetOptions):
        merged = None
    for parent in getattr(dataset, "parents", ()):
        found = gather_options(parent)
        if found is not None:
            merged = found if merged is None else merged.merge(found)
    return merged
