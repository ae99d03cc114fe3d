"""Numbers of users that have to be whole."""

import operator
from typing import Any

import numpy as np


def whole_number(name: str, value: Any, wanted: str = "") -> int:
    """Return `value` as an int, numpy's integers included, or refuse it.

    Args:
        name: What the argument is called.
        value: What was given for it.
        wanted: The beginning of the message, where there is more to say than that the argument
            has to be a whole number.
    """
    if isinstance(value, int):
        return value  # As it is: states name samplers by what they were given.
    try:
        return operator.index(value)
    except TypeError:
        wanted = wanted or f"`{name}` has to be a whole number"
        raise TypeError(f"{wanted}, but got {value!r}.") from None


def whole_count(name: str, value: Any) -> int:
    """Do the same, and take 2.0 for 2: a count is often the quotient of two others."""
    if isinstance(value, (float, np.floating)) and value.is_integer():
        return int(value)
    return whole_number(name, value)
