"""States: small trees of numbers that say where an iterator stands."""

from typing import Any

import numpy as np


def copy_state(state: Any) -> Any:
    """Return a state that shares nothing with `state` which could change."""
    # Most of a state is numbers: they are not worth a call each.
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


def as_plain(value: Any) -> Any:
    """Return a state's value as Python's own: numpy numbers come back from some checkpoints."""
    if isinstance(value, np.generic):
        return value.item()
    return value
