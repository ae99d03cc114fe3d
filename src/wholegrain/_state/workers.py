"""Converts one position into the positions of workers that take turns, and back.

Worker `w` of `n` computes the elements `w`, `w + n`, `w + 2 * n` and so on. If every element read
yields one element (`counting.is_one_to_one`), the number of elements read is the whole state. Then
`split` returns the state of any number of workers, and `join` that of a pipeline without workers.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from wholegrain._core.types import State
from wholegrain._state import failures
from wholegrain._state.interleave import interleave_state
from wholegrain._state.validate import is_whole_number


def counts_in_turn(count: int, num_workers: int) -> list[int]:
    """Return how many of the first `count` elements each worker computes."""
    return [max(0, -(-(count - worker) // num_workers)) for worker in range(num_workers)]


def states_of_workers(state: Any) -> Sequence[Any] | None:
    """Return the states of the workers in `state`; None if it contains none."""
    states = state.get("iterators_in_use_states") if isinstance(state, Mapping) else None
    return states if isinstance(states, (list, tuple)) else None


def in_turn(states: Sequence[State], next_worker: int) -> State:
    """Return the state of workers that take turns, none of which has ended."""
    count = len(states)
    return interleave_state(next_worker, count, list(range(count)), list(states), [0] * count)


def split(state: Any, num_workers: int) -> State | None:
    """Return the state of workers that together have read the elements that `state` describes.

    Args:
        state: The state of one iterator without workers, in a one-to-one pipeline.
        num_workers: The number of workers to split it over.

    Returns:
        None if the state does not say how many elements were read.
    """
    count = _elements_read(state)
    states = None if count is None else _split(state, num_workers)
    return None if states is None or count is None else in_turn(states, count % num_workers)


def _split(state: Any, num_workers: int) -> list[State] | None:
    if not isinstance(state, Mapping):
        return None
    if failures.KEY in state:
        states = _split(failures.without(state), num_workers)
        if states is not None:  # The first worker counts on.
            states[0] = failures.with_counts_of(states[0], state[failures.KEY], state)
        return states
    keys = set(state)
    if keys == {"next_index"} and _is_count(state["next_index"]):
        counts = counts_in_turn(operator.index(state["next_index"]), num_workers)
        return [{"next_index": count} for count in counts]
    if keys == {"parent", "index_for_rng"} and _is_count(state["index_for_rng"]):
        parents = _split(state["parent"], num_workers)
        drawn = counts_in_turn(operator.index(state["index_for_rng"]), num_workers)
        return parents and [
            {"parent": parent, "index_for_rng": count}
            for parent, count in zip(parents, drawn, strict=True)
        ]
    return None


def join(state: Any) -> Any:
    """Return the state of one iterator that has read what the workers in `state` have read.

    That is possible if there is one worker, or if the workers together have read a contiguous
    beginning of the data. Otherwise `state` is returned unchanged.
    """
    states = states_of_workers(state)
    if not states or not all(isinstance(one, Mapping) for one in states):
        return state
    if len(states) == 1:
        return states[0]  # One worker ran the whole pipeline.
    whole = _join(states)
    return state if whole is None else whole


def _join(states: Sequence[Any]) -> State | None:
    if not all(isinstance(state, Mapping) for state in states):
        return None
    counting = [state for state in states if failures.KEY in state]
    if counting:
        wraps = failures.is_wrapped(counting[0])
        peeled = [
            failures.without(state) if failures.is_wrapped(state) == wraps else state
            for state in states
        ]
        whole = _join(peeled)
        if whole is None:
            return None
        failed = failures.together(states, _turn_after(states))
        return failures.with_counts_of(whole, failed, counting[0])
    keys = {frozenset(state) for state in states}
    if keys == {frozenset({"next_index"})}:
        counts = [state["next_index"] for state in states]
        if not all(map(is_whole_number, counts)):
            return None
        count = sum(map(operator.index, counts))
        return {"next_index": count} if counts == counts_in_turn(count, len(counts)) else None
    if keys == {frozenset({"parent", "index_for_rng"})}:
        parent = _join([state["parent"] for state in states])
        drawn = [state["index_for_rng"] for state in states]
        if parent is not None and all(map(is_whole_number, drawn)):
            return {"parent": parent, "index_for_rng": sum(map(operator.index, drawn))}
    return None


def _turn_after(states: Sequence[Any]) -> int:
    """Return whose turn it is, if the workers have read a contiguous beginning of the data."""
    return sum(_elements_read(state) or 0 for state in states) % len(states)


def _elements_read(state: Any) -> int | None:
    while isinstance(state, Mapping):
        if "next_index" in state:
            count = state["next_index"]
            return operator.index(count) if _is_count(count) else None
        state = state.get("parent")
    return None


def _is_count(value: Any) -> bool:
    return is_whole_number(value) and operator.index(value) >= 0
