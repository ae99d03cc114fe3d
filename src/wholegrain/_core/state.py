"""States: small trees of numbers that say where an iterator stands."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._core import native


def python_copy_state(state: Any) -> Any:
    """Return a state that shares nothing with `state` which could change."""
    # Most of a state is numbers: they are not worth a call each.
    if type(state) is dict:
        copy = state.copy()
        for key, value in state.items():
            if type(value) is dict or type(value) is list:
                copy[key] = python_copy_state(value)
        return copy
    if type(state) is list:
        return [
            python_copy_state(value) if type(value) is dict or type(value) is list else value
            for value in state
        ]
    return state


copy_state: Callable[[Any], Any] = getattr(native.lib, "copy_state", python_copy_state)
"""The same, quicker: in C, if there is the extension."""


class WrongStateError(ValueError, KeyError):
    """A state is not one of the iterator that it was given to.

    For programs that know Grain it is a KeyError too: that is what a missing key is there.
    """

    def __str__(self) -> str:
        return str(self.args[0])


def part_of(state: Any, key: str, owner: object) -> Any:
    """Return the value of `key` in a state that was given to the iterator `owner`."""
    if not isinstance(state, Mapping):
        raise WrongStateError(
            f"The state of {_name(owner)} is a dict, but got {_shortened(state)}. Was it taken from"
            " another pipeline?"
        )
    if key not in state:
        raise WrongStateError(
            f"The state is not one of {_name(owner)}: it lacks {key!r}, and is"
            f" {_shortened(state)}. Was it taken from another pipeline?"
        )
    return state[key]


def index_of(state: Any, key: str, owner: object) -> int:
    """Return the whole number that a state has under `key`."""
    value = part_of(state, key, owner)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"The state is not one of {_name(owner)}: under {key!r} it has {_shortened(value)}"
            " instead of a whole number."
        ) from None


def number_of(state: Any, key: str, owner: object) -> int:
    """Return the number that a state has under `key`, if it is not negative."""
    number = index_of(state, key, owner)
    if number < 0:
        raise WrongStateError(
            f"The state is not one of {_name(owner)}: under {key!r} it has {number}, a negative"
            " number."
        )
    return number


def list_of(state: Any, key: str, owner: object) -> Sequence[Any]:
    """Return the list that a state has under `key`."""
    value: Any = part_of(state, key, owner)
    if not isinstance(value, (list, tuple)):
        raise WrongStateError(
            f"The state is not one of {_name(owner)}: under {key!r} it has {_shortened(value)}"
            " instead of a list."
        )
    return value


def _name(owner: object) -> str:
    return type(owner).__name__


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def joined(state: Any) -> Any:
    """Return the state of one iterator that has read what the workers of `state` have read.

    That is possible where they take turns at reading and have read a beginning of the data
    together. Otherwise `state` comes back as it is.
    """
    workers = state.get("iterators_in_use_states") if isinstance(state, Mapping) else None
    if not workers or not all(isinstance(worker, Mapping) for worker in workers):
        return state
    keys = {frozenset(worker) for worker in workers}
    if keys == {frozenset({"next_index"})}:
        counts = [worker["next_index"] for worker in workers]
        count = sum(counts)
        in_turn = [-(-(count - worker) // len(counts)) for worker in range(len(counts))]
        return {"next_index": count} if counts == in_turn else state
    if keys == {frozenset({"parent", "index_for_rng"})}:
        parents = {"iterators_in_use_states": [worker["parent"] for worker in workers]}
        parent = joined(parents)
        if parent is not parents:
            drawn = sum(worker["index_for_rng"] for worker in workers)
            return {"parent": parent, "index_for_rng": drawn}
    return state


def as_plain(value: Any) -> Any:
    """Return a state's value as Python's own: numpy numbers come back from some checkpoints."""
    if isinstance(value, np.generic):
        return value.item()
    return value
