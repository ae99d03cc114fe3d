"""Steps that are left out, and digests, as parts of states."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wholegrain._core.types import State
from wholegrain._state.validate import (
    WrongStateError,
    check_mapping,
    number_of,
    part_of,
    shortened,
    wrong_state,
)

STEERED = "steered"
"""The key under which a state has the steps that are skipped, and the digest."""

_OWNER = "ElasticIterator"


def is_steered(state: Any) -> bool:
    """Return whether a state belongs to a run with skipped steps or with a digest."""
    return isinstance(state, Mapping) and STEERED in state


def with_steering(state: State, about: Mapping[str, Any]) -> State:
    """Return a state with the steps that are left out, and with the digest of each lane.

    Args:
        state: The state of some lanes.
        about: The part of the state of a run that has them.
    """
    kept: dict[str, Any] = {"skipped": about["skipped"]}
    if about["digest"] is not None:
        kept["digests"] = dict(about["digest"])
    return {**state, STEERED: kept}


def as_steered(state: Any, owner: object, owned: Iterable[int], rows: int) -> State:
    """Return the state of the run of a host; the opposite of `with_steering`."""
    if STEERED not in state:
        return state  # type: ignore[no-any-return]
    about = check_mapping(state[STEERED], owner)
    digests: Any = None
    if "digests" in about:
        given = check_mapping(about["digests"], owner)
        missing = [lane for lane in owned if str(lane) not in given]
        if missing:
            raise wrong_state(owner, f"it has no digest of lane {missing[0]}")
        digests = {str(lane): given[str(lane)] for lane in owned}
    step = number_of(state, "elements_per_lane", owner) // rows
    steered = {"step": step, "skipped": part_of(about, "skipped", owner), "digest": digests}
    parent = {key: value for key, value in state.items() if key != STEERED}
    return {STEERED: steered, "parent": parent}


def merged_steering(parts: Sequence[Any]) -> dict[str, Any]:
    """Return what the states of several hosts say together."""
    kept = [check_mapping({} if part is None else part, _OWNER) for part in parts]
    first = kept[0]
    digests: dict[str, Any] = {}
    for one in kept:
        if one.get("skipped") != first.get("skipped") or ("digests" in one) != ("digests" in first):
            raise WrongStateError(
                "The states were not taken together: the hosts have left out other steps, or only"
                f" some of them have a digest: {shortened(one)} and {shortened(first)}."
            )
        digests |= check_mapping(one.get("digests", {}), _OWNER)
    merged = {"skipped": first.get("skipped", [])}
    return {**merged, "digests": digests} if "digests" in first else merged
