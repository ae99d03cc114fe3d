"""Numbers of users that have to be whole."""

import operator
from typing import Any


def whole_number(name: str, value: Any) -> int:
    """Return `value` as an int, numpy's integers included, or refuse it by the argument's name."""
    if isinstance(value, int):
        return value  # As it is: states name samplers by what they were given.
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` has to be a whole number, but got {value!r}.") from None
