"""States: small trees of numbers that describe the position of an iterator."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._core.names import kind_of


def copy_state(state: Any) -> Any:
    """Return a copy that shares nothing mutable with `state`."""
    # Most values are numbers, so save a call for each of them.
    if type(state) is dict:
        copy = state.copy()
        for key, value in state.items():
            if type(value) is dict or type(value) is list:
                copy[key] = copy_state(value)
        return copy
    if type(state) is list:
        return [
            copy_state(value) if type(value) is dict or type(value) is list else value
            for value in state
        ]
    return state


class WrongStateError(ValueError, KeyError, IndexError, TypeError):
    """A state does not belong to the iterator that it was passed to.

    Programs written for Grain can catch what Grain raises: a KeyError for a missing key, an
    IndexError for a position outside of the data, a TypeError for a value that is not a number.
    """

    def __str__(self) -> str:
        return str(self.args[0])


_LARGEST = 2**62
"""No position is this large; the sum of two such numbers still fits into 64 bits."""


def wrong_state(owner: object, problem: str) -> WrongStateError:
    """Return the error for a state that cannot belong to the iterator `owner`."""
    return WrongStateError(
        f"The state is not one of {_name(owner)}: {problem}. Was it taken from another pipeline, or"
        " changed?"
    )


def check_mapping(state: Any, owner: object) -> Mapping[str, Any]:
    """Return a state that was passed to the iterator `owner`, if it is a dict."""
    if not isinstance(state, Mapping):
        raise WrongStateError(
            f"The state of {_name(owner)} is a dict, but got {shortened(state)}. Was it taken from"
            " another pipeline?"
        )
    return state


def part_of(state: Any, key: str, owner: object) -> Any:
    """Return the value of `key` in a state that was passed to the iterator `owner`."""
    if key not in check_mapping(state, owner):
        raise wrong_state(owner, f"it lacks {key!r}, and is {shortened(state)}")
    return state[key]


def is_whole_number(value: Any) -> bool:
    """Whether a state's value is an integer."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def index_of(state: Any, key: str, owner: object) -> int:
    """Return the integer under `key` in a state."""
    value = part_of(state, key, owner)
    if not is_whole_number(value):
        raise wrong_state(owner, f"under {key!r} it has {shortened(value)}, not a whole number")
    return operator.index(value)


def number_of(state: Any, key: str, owner: object) -> int:
    """Return the number under `key` in a state, if it can be a position."""
    number = index_of(state, key, owner)
    if number < 0:
        raise wrong_state(owner, f"under {key!r} it has {shortened(number)}, a negative number")
    if number > _LARGEST:
        raise wrong_state(
            owner, f"under {key!r} it has {shortened(number)}, and no position is that large"
        )
    return number


def flag_of(state: Any, key: str, owner: object) -> bool:
    """Return the truth value under `key` in a state."""
    value = part_of(state, key, owner)
    if not is_flag(value):
        raise wrong_state(owner, f"under {key!r} it has {shortened(value)}, not true or false")
    return bool(value)


def is_flag(value: Any) -> bool:
    """Whether a state's value is a truth value; some states have numbers instead."""
    if isinstance(value, np.bool_):
        return True
    return is_whole_number(value) and operator.index(value) in (0, 1)


def list_of(state: Any, key: str, owner: object) -> Sequence[Any]:
    """Return the list under `key` in a state."""
    value: Any = part_of(state, key, owner)
    if not isinstance(value, (list, tuple)):
        raise wrong_state(owner, f"under {key!r} it has {shortened(value)}, not a list")
    return value


def _name(owner: object) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__


def shortened(value: Any) -> str:
    """Return a part of a state as text for a message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # Nested too deeply, or a number of too many digits.
        return f"{kind_of(value)} that is too large to show"
    return text if len(text) <= 300 else f"{text[:300]}..."
