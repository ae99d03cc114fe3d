"""How many failures were tolerated before a position, as part of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wholegrain._core.types import State
from wholegrain._state.validate import is_whole_number, wrong_state

KEY = "errors"
"""The key of the counts in a state: for each rule, how many, and how many of them in a row.

A state has it only if there were any."""

Counts = dict[str, list[int]]


def checked(state: Mapping[str, Any], owner: object) -> Counts:
    """Return the counts in the state of one stage; raise if they are not valid."""
    given: Any = state[KEY]
    if not isinstance(given, Mapping):
        raise wrong_state(owner, f'under "{KEY}" it has no counts')
    counts: Counts = {}
    for number, pair in given.items():
        numbers = list(pair) if isinstance(pair, Sequence) else []
        if len(numbers) != 2 or not all(is_whole_number(one) and one >= 0 for one in numbers):
            raise wrong_state(owner, f'under "{KEY}" it has {pair!r}, not two counts')
        counts[str(number)] = [int(one) for one in numbers]
    return counts


def counts_in(state: Any) -> Counts:
    """Return the counts of all stages of a pipeline together."""
    if isinstance(state, Mapping):
        workers = state.get("iterators_in_use_states")
        if isinstance(workers, Sequence) and not isinstance(workers, str):
            parts = [counts_in(worker) for worker in workers]
            return _in_turn(parts, int(state.get("next_index_in_cycle", 0)))
        found: Counts = {}
        if isinstance(state.get(KEY), Mapping):
            found = {str(number): list(pair) for number, pair in state[KEY].items()}
        # The states of lanes before their last rows describe positions that are passed.
        others = [part for name, part in state.items() if name not in (KEY, "padding_states")]
        inner = [counts_in(part) for part in others]
        return _added([found, *inner])
    if isinstance(state, (list, tuple)):
        return _added([counts_in(part) for part in state])
    return {}


def _added(parts: Sequence[Counts]) -> Counts:
    total: Counts = {}
    for part in parts:
        for number, (count, in_a_row) in part.items():
            before = total.get(number, [0, 0])
            total[number] = [before[0] + count, max(before[1], in_a_row)]
    return total


def _in_turn(parts: Sequence[Counts], next_turn: int) -> Counts:
    """Return the counts of workers that take turns.

    The last failures of all workers are in a row as far as every turn, going back, was a failure.
    """
    total = _added(parts)
    for number, pair in total.items():
        left = [part.get(number, [0, 0])[1] for part in parts]
        in_a_row, turn = 0, next_turn
        while left[(turn := (turn - 1) % len(parts))]:
            left[turn] -= 1
            in_a_row += 1
        pair[1] = in_a_row
    return total


def is_wrapped(state: Any) -> bool:
    """Whether a state is that of `on_error` of an IterDataset: its parent's, with the counts."""
    return isinstance(state, Mapping) and set(state) == {"parent", KEY}


def without(state: Mapping[str, Any]) -> State:
    """Return a state without the counts of its last stage."""
    if is_wrapped(state):
        return state["parent"]  # type: ignore[no-any-return]
    return {name: part for name, part in state.items() if name != KEY}


def with_counts_of(state: State, counts: Counts, like: Mapping[str, Any]) -> State:
    """Return a state with counts added in the way that another state has them."""
    return {"parent": state, KEY: counts} if is_wrapped(like) else {**state, KEY: counts}


def together(states: Sequence[State], next_turn: int) -> Counts:
    """Return the counts of workers that take turns, from the states of one stage in each."""
    return _in_turn([counts_in({KEY: state.get(KEY)}) for state in states], next_turn)
