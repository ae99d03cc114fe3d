"""Checks arguments that have to be whole numbers."""

import operator
from typing import Any

import numpy as np


def whole_number(name: str, value: Any, wanted: str = "") -> int:
    """Return `value` as an int, or raise; integers of numpy are accepted.

    Args:
        name: The name of the argument.
        value: Its value.
        wanted: The beginning of the message, if more has to be said than that the argument has to
            be a whole number.
    """
    if isinstance(value, int):
        return value  # Not converted: states contain the sampler's arguments as they were given.
    try:
        return operator.index(value)
    except TypeError:
        wanted = wanted or f"`{name}` has to be a whole number"
        raise TypeError(f"{wanted}, but got {value!r}.") from None


def whole_count(name: str, value: Any) -> int:
    """Do the same, but accept 2.0 for 2, because a count is often the quotient of two others."""
    if isinstance(value, (float, np.floating)) and value.is_integer():
        return int(value)
    return whole_number(name, value)
