"""Gives the random stages of a pipeline seeds that also depend on something else."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core.rng import seed_from_words
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.nodes.interleave import InterleaveIterDataset


def reseeded(dataset: Any, words: Sequence[int]) -> Any:
    """Return a pipeline in which each seed is combined with `words`.

    That holds for every stage that draws random numbers, and for interleaved datasets too.
    """
    again = functools.partial(reseeded, words=words)
    if dataset is None:  # An interleaved dataset may be missing.
        return None
    parents = getattr(dataset, "parents", ())
    # A stage that interleaves the shares of workers has a parent.
    if isinstance(dataset, InterleaveIterDataset) and not parents:
        return with_inputs(dataset, again)
    if parents:
        dataset = dataset.with_parents([again(parent) for parent in parents])
    return with_seed(dataset, words)


def with_seed(dataset: Any, words: Sequence[int]) -> Any:
    """Return the stage with a seed that is combined with `words`, if it has a seed."""
    if not (getattr(dataset, "is_random", False) and hasattr(dataset, "_seed")):
        return dataset
    changed = copy.copy(dataset)
    seed = changed._seed
    own = list(seed) if isinstance(seed, Sequence) else [seed]
    changed._seed = seed_from_words([*own, *words])
    changed._follow_parents()  # What was computed from the seed.
    return changed


def with_inputs(dataset: Any, change: Callable[[Any], Any]) -> Any:
    """Return an interleave of changed datasets."""
    inputs: Any = dataset.datasets
    changed: Any = copy.copy(dataset)
    if isinstance(inputs, MapDataset):
        changed._datasets = inputs.map(change)
    else:
        changed._datasets = [change(inputs[number]) for number in range(len(inputs))]
    return changed
