"""Where two nested elements differ: types, dtypes, shapes and values."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def difference(expected: Any, found: Any, *, key_order: bool = False) -> str | None:
    """Describe where two elements differ, or return None if they are equal.

    Types, dtypes and shapes count; NaN equals NaN. Containers, dataclasses and objects that
    do not define `==` are compared by their content.

    Args:
        expected: An element, of any type.
        found: The element to compare with it.
        key_order: Whether the keys of mappings must have the same order.

    Example:
        >>> difference({"x": np.zeros(2)}, {"x": np.zeros(3)})
        "at ['x']: the shape is (3,), not (2,)"
    """
    for path, problem in _differences(expected, found, "", key_order):
        return f"at {path}: {problem}" if path else problem
    return None


def _differences(
    expected: Any, found: Any, path: str, key_order: bool
) -> Iterator[tuple[str, str]]:
    """Yield a path and a sentence for each difference."""
    if expected is found:
        return
    if type(expected) is not type(found):
        yield path, f"the type is {_type_name(found)}, not {_type_name(expected)}"
    elif isinstance(expected, Mapping):
        if set(expected) != set(found):
            yield path, f"the keys are {list(found)}, not {list(expected)}"
            return
        if key_order and list(expected) != list(found):
            yield path, f"the order of the keys is {list(found)}, not {list(expected)}"
        for key in expected:
            yield from _differences(expected[key], found[key], f"{path}[{key!r}]", key_order)
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(found):
            yield path, f"the length is {len(found)}, not {len(expected)}"
            return
        for position, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differences(one, other, f"{path}[{position}]", key_order)
    elif isinstance(expected, (np.ndarray, np.generic)) or _is_array_like(expected):
        yield from _array_differences(np.asarray(expected), np.asarray(found), path, key_order)
    elif isinstance(expected, float) and math.isnan(expected) and math.isnan(found):
        return
    elif dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            one, other = getattr(expected, field.name), getattr(found, field.name)
            yield from _differences(one, other, f"{path}.{field.name}", key_order)
    elif _compares_by_identity(expected) and hasattr(expected, "__dict__"):
        yield from _differences(vars(expected), vars(found), path, key_order)
    elif not bool(expected == found):
        yield path, f"{show(found)} is not {show(expected)}"


def _array_differences(
    expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], path: str, key_order: bool
) -> Iterator[tuple[str, str]]:
    if expected.dtype != found.dtype:
        yield path, f"the dtype is {found.dtype}, not {expected.dtype}"
    elif expected.shape != found.shape:
        yield path, f"the shape is {found.shape}, not {expected.shape}"
    elif expected.dtype.hasobject:
        for position in np.ndindex(expected.shape):
            where = f"{path}[{', '.join(map(str, position))}]"
            yield from _differences(expected[position], found[position], where, key_order)
    elif expected.tobytes() != found.tobytes():
        # NaN is the one value that is not equal to itself.
        same = (expected == found) | ((expected != expected) & (found != found))
        for different in np.argwhere(~np.asarray(same)).tolist():
            index = tuple(different)
            where = f"{path}{list(index)}" if index else path
            yield where, f"{found[index]} is not {expected[index]}"


def _compares_by_identity(value: Any) -> bool:
    equal: Any = type(value).__eq__
    return equal is object.__eq__


def _is_array_like(value: Any) -> bool:
    """Whether numpy can read `value`, as it can read jax and torch arrays."""
    return hasattr(value, "__array__") and hasattr(value, "dtype") and hasattr(value, "shape")


def _type_name(value: Any) -> str:
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def show(value: Any) -> str:
    """Return the repr of `value`, shortened in the middle if it is long."""
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}"
