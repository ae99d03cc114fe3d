"""Waiting for the other processes of a job before Orbax takes what they write for complete."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from typing import Any

from wholegrain._core.log import logger
from wholegrain.sharding import jax_process

_TIMEOUT_S = 600

# How often a path was written: names of barriers are used once.
_times_written: collections.Counter[str] = collections.Counter()


def others_to_wait_for() -> Callable[[Any], None] | None:
    """Return a function that waits until all processes have called it with the same path.

    Orbax's newer interface moves a checkpoint to its place when the first process has written:
    what the others write later would be lost. Those who write have to wait for each other.

    It is to be called in the thread that saves, which knows Orbax's options; the function may be
    called in any thread. None if there is nobody to wait for.
    """
    if jax_process()[1] == 1 or "orbax.checkpoint" not in sys.modules:
        return None
    options = _multiprocessing_options()
    if options is not None and options.primary_host is None:
        return None  # Each process has a disk of its own.
    try:
        from orbax.checkpoint import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            multihost,
        )

        wait = multihost.get_barrier_sync_fn(processes=options and options.active_processes)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            "The iterators of several processes cannot be saved together: this release of Orbax"
            " lacks `multihost.get_barrier_sync_fn`, by which processes wait until all have"
            " written. Save them by `CheckpointManager` with `CheckpointSave`, or install another"
            " release of Orbax."
        ) from error

    def wait_for_others(path: Any) -> None:
        _times_written[str(path)] += 1
        key = f"wholegrain {path} {_times_written[str(path)]}"
        wait(key=key, timeout_ms=_TIMEOUT_S * 1000)

    return wait_for_others


def _multiprocessing_options() -> Any:
    """Return Orbax's options in this thread; None if it does not tell."""
    try:
        # There is no public way to ask.
        from orbax.checkpoint.experimental.v1._src.context import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            context,
        )

        options = context.get_context().multiprocessing_options
        _ = options.primary_host, options.active_processes
        return options
    except (ImportError, AttributeError, TypeError) as error:
        logger().warning(
            "This release of Orbax does not tell which processes save together (%r): all %d"
            " processes of the job wait for each other.",
            error,
            jax_process()[1],
        )
        return None
