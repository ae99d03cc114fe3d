"""Numbers of users that have to be whole."""

import operator
from typing import Any

import numpy as np


def whole_number(name: str, value: Any) -> int:
    """Return `value` as an int, numpy's integers included, or refuse it by the argument's name."""
    if isinstance(value, int):
        return value  # As it is: states name samplers by what they were given.
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` has to be a whole number, but got {value!r}.") from None


def whole_count(name: str, value: Any) -> int:
    """Do the same, and take 2.0 for 2: a count is often the quotient of two others."""
    if isinstance(value, (float, np.floating)) and value.is_integer():
        return int(value)
    return whole_number(name, value)
