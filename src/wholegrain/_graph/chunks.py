"""Chunks that a user's code reads."""

from collections.abc import Sequence
from typing import Any


def read_chunk(reader: Any, method: str, indices: Sequence[int]) -> list[Any]:
    """Call a method that reads many elements, and return as many as were asked for."""
    elements = getattr(reader, method)(indices)
    if len(elements) != len(indices):
        raise ValueError(
            f"`{type(reader).__name__}.{method}` was asked for {len(indices)} elements, but"
            f" returned {len(elements)}. It has to return one for each index, in that order."
        )
    # To an array, numbers would be added where a list is extended.
    return elements if type(elements) is list else list(elements)
