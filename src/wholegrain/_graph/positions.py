"""Positions that follow from a number of elements, without reading any of them.

There are two kinds. Where every element read gives one element, how many were read says
everything, whatever the number of workers (`state_at`, `elements_read`). And there are pipelines
without workers in which the state a number of elements further on is a matter of arithmetic
(`states_of`): those, and batches of them, limits, and what counts its elements.
"""

from __future__ import annotations

import operator
from typing import Any

from wholegrain._core.state import is_whole_number
from wholegrain._core.types import State
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset
from wholegrain._graph.stage import Step


def state_at(dataset: Any, count: int) -> State | None:
    """Return the state after `count` elements; None if it does not follow from the count."""
    if type(dataset) is PrefetchIterDataset:
        return {"next_index": count} if dataset.gives_all else None
    step = _own_step(dataset)
    if step == _SAME:
        return state_at(dataset.parents[0], count)
    if step == _DRAWS:
        parent = state_at(dataset.parents[0], count)
        return None if parent is None else {"parent": parent, "index_for_rng": count}
    return None


def elements_read(state: Any) -> int | None:
    """Return how many elements were read in all, if the state of one iterator says."""
    if not isinstance(state, dict):
        return None
    for counter in ("next_index", "index_for_rng"):
        if counter in state:
            count = state[counter]
            return operator.index(count) if is_whole_number(count) and count >= 0 else None
    return None


_SAME = Step()
_DRAWS = Step(counter="index_for_rng")


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
        return self._after(state, count, 0, ended=False)

    def _after(self, state: State, count: int, depth: int, ended: bool) -> State:
        # `ended`: one element more was asked for, and there was none.
        if depth == len(self._steps):
            index = int(state["next_index"])
            return {"next_index": max(index, self._length) if ended else index + count}
        step = self._steps[depth]
        parent = state if step.counter is None else state["parent"]
        count_below = count
        if step.limit is not None and step.counter is not None:
            # After as many as there may be it asks for no more.
            ended = ended and int(state[step.counter]) + count < step.limit
        if step.size > 1:
            left = self._left(parent, depth + 1)
            ended = ended or count * step.size > left
            count_below = left if ended else count * step.size
        after = self._after(parent, count_below, depth + 1, ended)
        if step.counter is None:
            return after
        return {"parent": after, step.counter: int(state[step.counter]) + count}


def read_until(state: State) -> int:
    """Return how far the MapDataset is read when the pipeline has `state`."""
    while "parent" in state:
        state = state["parent"]
    return int(state["next_index"])


def _step_of(dataset: Any) -> Step:
    step = _own_step(dataset)
    if step is None:
        raise UncountableError(
            f"behind {dataset}, where an element comes from is not known before those in front of"
            " it are read"
        )
    return step


def _own_step(dataset: Any) -> Step | None:
    # Of the class itself: what a subclass does may be something else.
    return dataset._step if "_step" in vars(type(dataset)) else None
