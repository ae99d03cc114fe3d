"""Events in a trace of the jax profiler, under the keys that XProf's input-pipeline analysis reads.

jax is never imported for this: without jax there is no trace, and without a trace no event.
"""

from __future__ import annotations

import sys
from typing import Any

READ, PREPROCESSING, PREFETCH, UNKNOWN = "read", "preprocessing", "prefetch", "unknown"


def is_traced() -> bool:
    """Return whether a trace is being taken."""
    profiler = sys.modules.get("jax.profiler")
    is_enabled = getattr(getattr(profiler, "TraceAnnotation", None), "is_enabled", None)
    return bool(is_enabled and is_enabled())


def begin(name: str, stage: str, number: int, category: str, **more: Any) -> Any:
    """Begin an event if a trace is being taken; pass the result to `end`.

    Args:
        name: The class and method that is called.
        stage: The name of the stage.
        number: The number of the stage in the pipeline.
        category: The kind of stage.
        more: Further metadata.
    """
    if not is_traced():
        return None
    event = sys.modules["jax.profiler"].TraceAnnotation(
        name,
        _ipl_stage_name=stage,
        _ipl_stage_id=number,
        _ipl_stage_cat=category,
        **more,
    )
    event.__enter__()
    return event


def end(event: Any) -> None:
    """End an event."""
    if event is not None:
        event.__exit__(None, None, None)


def begin_wait(name: str, stage: Any, number: int = 0) -> Any:
    """Begin an event for waiting until elements are ready."""
    if "jax.profiler" not in sys.modules or not is_traced():
        return None
    return begin(name, str(stage), number, PREFETCH)


def begin_read(dataset: Any, first: int) -> Any:
    """Begin an event for reading the elements of a dataset from the position `first` on."""
    if "jax.profiler" not in sys.modules or not is_traced():
        return None
    name = str(dataset)
    more = {"_ipl_dataset_name": name, "_ipl_dataset_index": first}
    return begin("Prefetch._getitem", name, 0, READ, **more)
