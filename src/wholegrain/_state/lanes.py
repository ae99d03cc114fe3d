"""States of lanes: how they are built and checked, and how those of several hosts are merged."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wholegrain._core.types import State
from wholegrain._state.steered import STEERED, merged_steering
from wholegrain._state.validate import (
    WrongStateError,
    check_mapping,
    is_whole_number,
    list_of,
    number_of,
    part_of,
    shortened,
    wrong_state,
)

_OWNER = "ElasticIterator"


def lane_state(
    lanes: int,
    elements: int,
    states: Mapping[int, Any],
    ended: Iterable[int],
    padding: Mapping[int, Any],
) -> State:
    """Return the state of some lanes.

    Args:
        lanes: How many lanes there are on all hosts.
        elements: How many elements the steps so far have taken from each lane, with padding.
        states: The state of each lane of this host.
        ended: The lanes that have ended.
        padding: The state of each lane before its last row, if lanes that end are padded.
    """
    state = {
        "lanes": lanes,
        "elements_per_lane": elements,
        "lane_states": {str(lane): one for lane, one in sorted(states.items())},
        "ended_lanes": sorted(ended),
    }
    if padding:
        state["padding_states"] = {str(lane): one for lane, one in sorted(padding.items())}
    return state


class LaneState(NamedTuple):
    """The content of a state, for the lanes of this host."""

    elements: int
    states: dict[int, Any]
    ended: set[int]
    padding: dict[int, Any]


def check_lane_state(
    state: Any, owner: object, lanes: int, owned: Iterable[int], rows: int
) -> LaneState:
    """Return the content of a state; raise if it does not fit.

    Args:
        state: The state, of these lanes or of more.
        owner: The iterator that it was passed to, for messages.
        lanes: How many lanes there are.
        owned: The lanes of this host.
        rows: How many elements a step takes from each lane.
    """
    saved = _lanes_of(state)
    if saved != lanes:
        raise WrongStateError(
            f"The state was taken with {saved} lanes, but there are {lanes} here. The order depends"
            f" on their number: restore it with lanes={saved}."
        )
    elements = number_of(state, "elements_per_lane", owner)
    if elements % rows:
        raise WrongStateError(
            f"The state was taken after {elements} elements of each lane, which is no whole number"
            f" of steps with {rows} elements of each lane. Use a `global_batch_size` that divides"
            f" {elements * lanes}."
        )
    states = _states_of(state)
    missing = [lane for lane in owned if lane not in states]
    if missing:
        raise WrongStateError(
            f"The state has no lane {missing[0]}: of {lanes} lanes it has {_ranges(states)}, and"
            f" this host has {_ranges(owned)}. Merge the states of all hosts that saved them, with"
            " `checkpoint.merge_states`."
        )
    own = {lane: states[lane] for lane in owned}
    padding = {lane: one for lane, one in _padding_of(state).items() if lane in own}
    return LaneState(elements, own, _ended_of(state) & set(own), padding)


def merge_states(states: Iterable[State]) -> State:
    """Merge the states that the hosts of a job have taken after the same step.

    Every host, of any number of hosts, can restore the result with `set_state`: it takes the lanes
    that it has.

    Args:
        states: The states of `ElasticIterator`s with `lanes`, one of each host in any order.

    Raises:
        ValueError: If they do not belong together, or if a lane is missing.

    Example:
        >>> state = merge_states([it.get_state() for it in iterators])
        >>> elastic.set_state(state)
    """
    given = list(states)
    if not given:
        raise ValueError("There are no states to merge.")
    merged = merge_some(given)
    missing = sorted(set(range(merged["lanes"])) - set(map(int, merged["lane_states"])))
    if missing:
        raise WrongStateError(
            f"Of {merged['lanes']} lanes, {_ranges(missing)} are missing. Give the states of all"
            " hosts."
        )
    return merged


def merge_some(states: Sequence[State]) -> State:
    """Merge states of which lanes may be missing."""
    first = states[0]
    found: dict[int, Any] = {}
    padding: dict[int, Any] = {}
    ended: set[int] = set()
    for state in states:
        for key in ("lanes", "epoch", "elements_per_lane"):
            _lanes_of(state)
            if part_of(state, key, _OWNER) != part_of(first, key, _OWNER):
                raise WrongStateError(
                    "The states were not taken together: under"
                    f" {key!r}, one has {shortened(first[key])} and another"
                    f" {shortened(state[key])}."
                )
        for lane, one in _states_of(state).items():
            if lane in found and found[lane] != one:
                raise WrongStateError(
                    f"Two of the states have lane {lane}, at different positions. Were the hosts"
                    " given the same shard?"
                )
            found[lane] = one
        ended |= _ended_of(state)
        padding |= _padding_of(state)
    merged = lane_state(first["lanes"], first["elements_per_lane"], found, ended, padding)
    rest = {key: value for key, value in first.items() if key not in merged}
    if any(STEERED in state for state in states):
        rest[STEERED] = merged_steering([state.get(STEERED) for state in states])
    return {**merged, **rest}


def _lanes_of(state: Any) -> int:
    if "lane_states" not in check_mapping(state, _OWNER):
        raise WrongStateError(
            f"The state has no lanes, but the keys {shortened(list(state))}. Was it taken by an"
            " `ElasticIterator` without `lanes`, or by another iterator?"
        )
    return number_of(state, "lanes", _OWNER)


def _states_of(state: Any) -> dict[int, Any]:
    return _by_lane(state, "lane_states")


def _padding_of(state: Any) -> dict[int, Any]:
    return _by_lane(state, "padding_states") if "padding_states" in state else {}


def _by_lane(state: Any, key: str) -> dict[int, Any]:
    """Return states by the number of their lane, which JSON has turned into a string."""
    states = check_mapping(part_of(state, key, _OWNER), _OWNER)
    count = number_of(state, "lanes", _OWNER)
    found: dict[int, Any] = {}
    for name, value in states.items():
        text = str(name)
        if not text.isdecimal() or not int(text) < count:
            raise wrong_state(_OWNER, f"it has a lane {shortened(name)} of {count}")
        found[int(text)] = value
    return found


def _ended_of(state: Any) -> set[int]:
    ended = list_of(state, "ended_lanes", _OWNER)
    if not all(map(is_whole_number, ended)):
        raise wrong_state(_OWNER, f"the lanes that have ended are {shortened(ended)}")
    return set(map(operator.index, ended))


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text: "0-3, 7"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found) or "none"
