"""The rank and the world size of a worker of Ray Train."""

import sys
from typing import Any

from wholegrain._core.interruption import is_interruption


def _context() -> Any:
    train = sys.modules.get("ray.train")  # Imported in every worker of Ray Train.
    if train is None:
        return None
    try:
        context = train.get_context()
        context.get_world_rank()
    except Exception as error:  # Outside of a worker; which exception depends on the version.
        if is_interruption(error):
            raise
        return None
    return context


def rank() -> int | None:
    """Return the rank of this worker of Ray Train; None elsewhere."""
    context = _context()
    return None if context is None else int(context.get_world_rank())


def world_size() -> int | None:
    """Return how many workers this training with Ray Train has; None elsewhere."""
    context = _context()
    return None if context is None else int(context.get_world_size())
