"""The state of interleaved datasets: how it is built, and how it is checked."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wholegrain._core.types import State
from wholegrain._state.validate import (
    WrongStateError,
    copy_state,
    is_flag,
    is_whole_number,
    list_of,
    number_of,
    shortened,
    wrong_state,
)


def interleave_state(
    next_slot: int,
    next_dataset: int,
    numbers: list[int],
    states: list[Any],
    exhausted: list[int],
    future_states: dict[int, Any] | None = None,
    ended_datasets: list[int] | None = None,
) -> State:
    """Return a state with Grain's keys.

    Args:
        next_slot: The slot that is read next.
        next_dataset: The next dataset to open.
        numbers: The dataset that each slot holds, or held last.
        states: The state of each slot's dataset.
        exhausted: For each slot, 1 if its dataset has ended and no other follows.
        future_states: The states at which datasets start that are not open yet.
        ended_datasets: Datasets that have ended before they were opened here. Grain has no such
            key, so it is left out if there are none.
    """
    state: State = {
        "next_index_in_cycle": next_slot,
        "next_index_in_datasets": next_dataset,
        "iterators_in_use_indices": numbers,
        "iterators_in_use_states": states,
        "exhausted": exhausted,
        "future_states": future_states or {},
    }
    if ended_datasets:
        state["ended_datasets"] = ended_datasets
    return state


class Cycle(NamedTuple):
    """The content of a state, with Python's own integers."""

    next_slot: int
    next_dataset: int
    numbers: list[int]
    slots: list[tuple[int, Any, Any]]
    """For each slot the number of its dataset, its state, and whether it has ended."""

    future_states: dict[int, Any]
    ended_datasets: set[int]


def parsed(state: Any) -> Cycle:
    """Return the content of a state that `checked` has accepted."""
    numbers = [operator.index(number) for number in state["iterators_in_use_indices"]]
    states, ended = state["iterators_in_use_states"], state["exhausted"]
    future_states = state.get("future_states", {}).items()
    return Cycle(
        operator.index(state["next_index_in_cycle"]),
        operator.index(state["next_index_in_datasets"]),
        numbers,
        list(zip(numbers, states, ended, strict=False)),
        {int(number): copy_state(future) for number, future in future_states},
        set(map(int, state.get("ended_datasets", ()))),
    )


def states_of_datasets(state: State, num_datasets: int) -> list[State]:
    """Return for each dataset whether it has ended, and its state; None if it is not open."""
    cycle = parsed(state)
    states = {number: state for number, state, has_ended in cycle.slots if not has_ended}
    datasets: list[State] = []
    for number in range(num_datasets):
        has_ended = number < cycle.next_dataset or number in cycle.ended_datasets
        if number in states:
            datasets.append({"exhausted": 0, "state": states[number]})
        elif not has_ended:
            datasets.append({"exhausted": 0, "state": cycle.future_states.get(number)})
        else:
            datasets.append({"exhausted": 1, "state": None})
    return datasets


def state_from_datasets(datasets: Sequence[Mapping[str, Any]], cycle_length: int) -> State:
    """Return the state in which each dataset has the given state: `states_of_datasets` inverted."""
    active = [number for number, dataset in enumerate(datasets) if not dataset["exhausted"]]
    ended = [number for number, dataset in enumerate(datasets) if dataset["exhausted"]]
    in_cycle, later = active[:cycle_length], active[cycle_length:]
    fill = ended[: cycle_length - len(in_cycle)]
    return interleave_state(
        0,
        max(in_cycle, default=len(datasets) - 1) + 1,
        in_cycle + fill,
        [datasets[number]["state"] for number in in_cycle + fill],
        [0] * len(in_cycle) + [1] * len(fill),
        {number: datasets[number]["state"] for number in later},
        ended,
    )


def checked(
    state: Any, owner: object, num_datasets: int, cycle_length: int
) -> tuple[Sequence[int], Sequence[Any]]:
    """Return the numbers and states of the open datasets; raise if the state is not valid.

    Args:
        state: The state to check.
        owner: The iterator that it was passed to, for messages.
        num_datasets: The number of datasets.
        cycle_length: How many of them are open at a time.
    """
    numbers, states, ended = (
        list_of(state, name, owner)
        for name in ("iterators_in_use_indices", "iterators_in_use_states", "exhausted")
    )
    if len(ended) != cycle_length:
        raise WrongStateError(
            f"The state was taken with {len(ended)} datasets or workers read in turn, but there are"
            f" {cycle_length} here. Restore it with the same number."
        )
    if not len(numbers) <= len(states) <= len(ended) or not all(map(is_flag, ended)):
        raise wrong_state(
            owner,
            f"it has {len(numbers)} datasets with {len(states)} states, and {shortened(ended)} for"
            " those that have ended",
        )
    later, all_ended = state.get("future_states", {}), state.get("ended_datasets", ())
    if not isinstance(later, Mapping) or not isinstance(all_ended, (list, tuple)):
        raise wrong_state(owner, f"datasets to open later are {shortened((later, all_ended))}")
    _check_numbers([*numbers, *all_ended, *map(_key_as_number, later)], owner, num_datasets)
    if len(set(numbers)) < len(numbers):
        raise wrong_state(owner, f"it has a dataset twice: {shortened(numbers)}")
    _check_at_most(state, "next_index_in_cycle", max(0, cycle_length - 1), owner)
    _check_at_most(state, "next_index_in_datasets", num_datasets, owner)
    for slot, slot_state in enumerate(states):
        if (slot < len(numbers)) == (slot_state is None) and not ended[slot]:
            raise wrong_state(owner, f"slot {slot} has a dataset or a state, but not both")
    return numbers, states


def _check_numbers(numbers: Iterable[Any], owner: object, num_datasets: int) -> None:
    for number in numbers:
        if not is_whole_number(number) or not 0 <= number < num_datasets:
            raise wrong_state(owner, f"it has a dataset {shortened(number)} of {num_datasets}")


def _check_at_most(state: Any, name: str, most: int, owner: object) -> None:
    if number_of(state, name, owner) > most:
        raise wrong_state(owner, f"under {name!r} it has {state[name]}, but that is at most {most}")


def _key_as_number(key: Any) -> Any:
    """Return the number of a dataset, which JSON has turned into a string."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key
