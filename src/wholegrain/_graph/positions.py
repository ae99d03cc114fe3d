"""Positions that follow from a number of elements, without reading any of them.

There are two kinds. Where every element read gives one element, how many were read says
everything, whatever the number of workers (`state_at`, `elements_read`). And there are pipelines
without workers in which the state a number of elements further on is a matter of arithmetic
(`states_of`): those, and batches of them, limits, and what counts its elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wholegrain._core.types import State
from wholegrain._graph.nodes.batch import BatchIterDataset
from wholegrain._graph.nodes.limit import LimitIterDataset
from wholegrain._graph.nodes.map import MapIterDataset
from wholegrain._graph.nodes.map_with_index import MapWithIndexIterDataset
from wholegrain._graph.nodes.options import SeedIterDataset, WithOptionsIterDataset
from wholegrain._graph.nodes.random_map import RandomMapIterDataset
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset

_UNCHANGED = (MapIterDataset, SeedIterDataset, WithOptionsIterDataset)


def state_at(dataset: Any, count: int) -> State | None:
    """Return the state after `count` elements; None if it does not follow from the count."""
    if type(dataset) is PrefetchIterDataset:
        return {"next_index": count} if dataset.gives_all else None
    if type(dataset) in _UNCHANGED or vars(type(dataset)).get("_step") is not None:
        if type(dataset) not in _UNCHANGED and dataset._step != _SAME:
            return None
        return state_at(dataset.parents[0], count)
    if type(dataset) is RandomMapIterDataset:
        parent = state_at(dataset.parents[0], count)
        return None if parent is None else {"parent": parent, "index_for_rng": count}
    return None


def elements_read(state: Any) -> int | None:
    """Return how many elements were read in all, if the state says."""
    if not isinstance(state, dict):
        return None
    if "next_index" in state:
        return int(state["next_index"])
    if "index_for_rng" in state:
        return int(state["index_for_rng"])
    workers = state.get("iterators_in_use_states")
    if workers is None:
        return None
    counts = [elements_read(worker) for worker in workers]
    return None if None in counts else sum(counts)  # type: ignore[arg-type]


class Step(NamedTuple):
    """What one stage does to positions.

    A class of datasets says so in its attribute `_step`, or None if an instance does not have one.

    Args:
        size: How many of the parent's elements make one.
        drop_remainder: Whether fewer of them, at the end, make none.
        counter: Under which name its state counts its elements, beside that of the parent.
        limit: How many elements there are at most.
    """

    size: int = 1
    drop_remainder: bool = False
    counter: str | None = None
    limit: int | None = None


_SAME = Step()


class UncountableError(ValueError):
    """A position of the pipeline does not follow from the number of elements."""


class CountedStates:
    """The states of a pipeline, by arithmetic.

    Args:
        dataset: The pipeline, without workers.

    Raises:
        UncountableError: If some stage makes that impossible.
    """

    def __init__(self, dataset: Any) -> None:
        steps: list[Step] = []
        while not isinstance(dataset, PrefetchIterDataset):
            steps.append(_step_of(dataset))
            dataset = dataset.parents[0]
        if not dataset.gives_all:
            raise UncountableError(
                "some elements are missing after `filter` or a flat map on a MapDataset, and how"
                " many is not known before they are read"
            )
        self._steps = tuple(steps)
        self._length = len(dataset.parents[0])

    def left(self, state: State) -> int:
        """Return how many elements follow after `state`."""
        return self._left(state, 0)

    def _left(self, state: State, depth: int) -> int:
        if depth == len(self._steps):
            return max(0, self._length - int(state["next_index"]))
        step = self._steps[depth]
        parent_left = self._left(state if step.counter is None else state["parent"], depth + 1)
        rounded = parent_left if step.drop_remainder else parent_left + step.size - 1
        left = rounded // step.size
        if step.limit is not None and step.counter is not None:
            left = min(left, max(0, step.limit - int(state[step.counter])))
        return left

    def after(self, state: State, count: int) -> State:
        """Return the state that many elements after `state`; there have to be so many."""
        return self._after(state, count, 0)

    def _after(self, state: State, count: int, depth: int) -> State:
        if depth == len(self._steps):
            return {"next_index": int(state["next_index"]) + count}
        step = self._steps[depth]
        parent = state if step.counter is None else state["parent"]
        if step.size > 1:
            count_below = min(count * step.size, self._left(parent, depth + 1))
        else:
            count_below = count
        after = self._after(parent, count_below, depth + 1)
        if step.counter is None:
            return after
        return {"parent": after, step.counter: int(state[step.counter]) + count}


def read_until(state: State) -> int:
    """Return how far the MapDataset is read when the pipeline has `state`."""
    while "parent" in state:
        state = state["parent"]
    return int(state["next_index"])


def _step_of(dataset: Any) -> Step:
    kind = type(dataset)
    step: Step | None = None
    # Of the class itself: what a subclass does may be something else.
    if kind in _UNCHANGED:
        step = _SAME
    elif kind is RandomMapIterDataset:
        step = Step(counter="index_for_rng")
    elif kind is MapWithIndexIterDataset:
        step = Step(counter="counter")
    elif kind is LimitIterDataset:
        step = Step(counter="count_elements_read", limit=dataset._count)
    elif kind is BatchIterDataset:
        step = Step(dataset._batch_size, dataset._drop_remainder)
    elif "_step" in vars(kind):
        step = dataset._step
    if step is None:
        raise UncountableError(
            f"behind {dataset}, where an element comes from is not known before those in front of"
            " it are read"
        )
    return step
