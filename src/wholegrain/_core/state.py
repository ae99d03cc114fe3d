"""States: small trees of numbers that say where an iterator stands."""

from typing import Any

import numpy as np


def copy_state(state: Any) -> Any:
    """Return a state that shares nothing with `state` which could change."""
    if type(state) is dict:
        return {key: copy_state(value) for key, value in state.items()}
    if type(state) is list:
        return [copy_state(value) for value in state]
    return state


def as_plain(value: Any) -> Any:
    """Return a state's value as Python's own: numpy numbers come back from some checkpoints."""
    if isinstance(value, np.generic):
        return value.item()
    return value
