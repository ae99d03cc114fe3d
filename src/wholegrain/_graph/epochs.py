"""Notices a program that means to train for several epochs, and reads the first one every time.

    for epoch in range(10):
        for batch in ds: ...

Each `iter(ds)` begins where the last one began: the order of a shuffle and the numbers of a random
map are the same again. Nothing is wrong with that, but seldom is it meant.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from wholegrain._core.log import logger
from wholegrain._observe import outline

_runs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


_are_meant = 0


@contextlib.contextmanager
def meant() -> Iterator[None]:
    """Say nothing of runs that begin in this block: a check compares them."""
    global _are_meant
    _are_meant += 1
    try:
        yield
    finally:
        _are_meant -= 1


def begun(dataset: Any) -> None:
    """Note that a run has given its first element and goes on; say so once if it repeats."""
    if _are_meant:
        return
    # Iterating over a MapDataset makes a new IterDataset each time.
    known_as = dataset.parents[0] if getattr(dataset, "is_bridge", False) else dataset
    try:
        count = _runs[known_as] = _runs.get(known_as, 0) + 1
    except TypeError:  # A class of the user's whose objects have no hash.
        return
    if count == 2:
        random = _random_stages(dataset)
        if random:
            logger().warning(
                "A dataset is read from its start again, and gives what it gave before: the same"
                " random numbers in %s. For epochs that differ, repeat before `to_iter_dataset()`,"
                " as in `ds.shuffle(seed=...).repeat(num_epochs)`, or give a DataLoader's sampler"
                " `num_epochs`; then iterate once. This is said once for each dataset.",
                " and ".join(random),
            )


def _random_stages(dataset: Any) -> list[str] | None:
    """Return the stages that draw random numbers; None where epochs are taken care of."""
    found = []
    for stage in _stages(dataset):
        epochs = getattr(stage, "epochs_inside", 1)
        if epochs is None or epochs > 1:
            return None
        if getattr(stage, "is_random", False):
            found.append(outline.label(stage))
    return list(dict.fromkeys(reversed(found)))


def _stages(dataset: Any) -> Iterator[Any]:
    yield dataset
    for parent in getattr(dataset, "parents", ()):
        yield from _stages(parent)
