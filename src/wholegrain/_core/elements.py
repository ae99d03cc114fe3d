"""The structure of an element, and how much memory it takes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from wholegrain._core import tree
from wholegrain._core.interruption import is_interruption

_SIZED = frozenset({np.ndarray, int, float, bool})


def describe(element: Any) -> Any:
    """Return a tree like `element` with each leaf replaced by its type and shape."""
    if isinstance(element, Mapping):
        return {key: describe(value) for key, value in element.items()}
    if isinstance(element, (list, tuple)):
        kind = type(element).__name__
        if not element:
            return f"{kind}<>[0]"
        if all(isinstance(item, type(element[0])) for item in element):
            return f"{kind}<{type(element[0]).__name__}>{_shape(element)}"
        described = [describe(item) for item in element]
        return described if isinstance(element, list) else tuple(described)
    if isinstance(element, np.ndarray | np.generic):
        return f"{element.dtype}{_shape(element)}"
    if dataclasses.is_dataclass(element) and not isinstance(element, type):
        names = [field.name for field in dataclasses.fields(element)]
    elif hasattr(element, "__attrs_attrs__"):
        names = [attribute.name for attribute in element.__attrs_attrs__]
    else:
        return f"{type(element).__name__}{_shape(element)}"
    fields = {name: describe(getattr(element, name)) for name in names}
    return f"{type(element).__name__}\n{fields}[]"


def _shape(value: Any) -> str:
    try:
        return str(list(np.asarray(value).shape))
    except ValueError:
        return "[unknown shape]"


def nbytes(element: Any) -> int:
    """Estimate the memory of `element` from its arrays, strings and bytes.

    For objects with declared fields, such as dataclasses, only the fields themselves count, not
    objects nested in them.
    """
    kind = type(element)
    if kind in _SIZED:  # The usual elements of short runs, whose first reads are measured.
        return element.nbytes if kind is np.ndarray else 32
    try:
        return sum(_nbytes_of_fields(leaf) or _nbytes_of(leaf) for leaf in tree.leaves(element))
    except Exception as error:  # Such as a RecursionError for a list that contains itself.
        if is_interruption(error):
            raise
        return 32


def _nbytes_of_fields(leaf: Any) -> int:
    """Estimate the memory of an object with declared fields; 0 for anything else."""
    kind = type(leaf)
    if hasattr(kind, "__dataclass_fields__"):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [attribute.name for attribute in kind.__attrs_attrs__]
    else:
        return 0
    return 32 + sum(_nbytes_of(getattr(leaf, name, None)) for name in names)


def _nbytes_of(element: Any) -> int:
    total = 0
    for leaf in tree.leaves(element):
        try:
            size = getattr(leaf, "nbytes", None)
        except Exception as error:  # Some array types raise for `nbytes`.
            if is_interruption(error):
                raise
            size = None
        if isinstance(size, int):
            total += size
        elif isinstance(leaf, (str, bytes, bytearray)):
            total += len(leaf)
        else:
            total += 32
    return total
