"""Detects programs that mean to train for several epochs but read the first one every time.

    for epoch in range(10):
        for batch in ds: ...

Each `iter(ds)` starts from the beginning, with the same shuffle order and the same random numbers.
That is correct, but rarely intended.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from wholegrain._core.log import logger
from wholegrain._graph.dataset import upstream
from wholegrain._observe import outline

_runs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


_are_meant = 0


@contextlib.contextmanager
def meant() -> Iterator[None]:
    """Do not report runs that start in this block, because a check compares them."""
    global _are_meant
    _are_meant += 1
    try:
        yield
    finally:
        _are_meant -= 1


def begun(dataset: Any) -> None:
    """Record that a run has passed its first element; log once if it repeats another run."""
    if _are_meant:
        return
    # Iterating over a MapDataset creates a new IterDataset each time.
    known_as = dataset.parents[0] if getattr(dataset, "is_bridge", False) else dataset
    try:
        count = _runs[known_as] = _runs.get(known_as, 0) + 1
    except TypeError:  # A user's class whose objects are not hashable.
        return
    if count == 2:
        random = _random_stages(dataset)
        if random:
            logger().warning(
                "A dataset is iterated again from its start and yields the same elements: the same"
                " random numbers in %s. For epochs that differ, repeat before `to_iter_dataset()`,"
                " as in `ds.shuffle(seed=...).repeat(num_epochs)`, or pass a DataLoader's sampler"
                " `num_epochs`; then iterate once. This is logged once per dataset.",
                " and ".join(random),
            )


def _random_stages(dataset: Any) -> list[str] | None:
    """Return the stages that draw random numbers, or None if epochs are already handled."""
    found = []
    for stage in upstream(dataset):
        epochs = getattr(stage, "epochs_inside", 1)
        if epochs is None or epochs > 1:
            return None
        if getattr(stage, "is_random", False):
            found.append(outline.label(stage))
    return list(dict.fromkeys(reversed(found)))
