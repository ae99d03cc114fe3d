"""Pickling that also takes what cannot be imported: lambdas, classes of the main script."""

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

BufferCallback = Callable[[pickle.PickleBuffer], object]

PROTOCOL = 5

ByValuePickler = cloudpickle.Pickler
"""The pickler behind `dumps_by_value`, for writing to a file."""


def dumps(value: object, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle `value`: quickly, or else by value where that fails."""
    try:
        return pickle.dumps(value, PROTOCOL, buffer_callback=buffer_callback)
    except Exception:
        return dumps_by_value(value, buffer_callback)


def dumps_by_value(value: object, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle `value` with the classes and functions that cannot be imported elsewhere."""
    data: Any = cloudpickle.dumps(value, PROTOCOL, buffer_callback=buffer_callback)
    return bytes(data)
