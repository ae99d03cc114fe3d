"""Pickling that also takes what cannot be imported: lambdas, classes of the main script."""

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

BufferCallback = Callable[[pickle.PickleBuffer], object]

PROTOCOL = 5

ByValuePickler = cloudpickle.Pickler
"""The pickler behind `dumps_by_value`, for writing to a file."""

# cloudpickle gives every class that it sends by value a number, and knows it again by that.
_number_of_class: Mapping[type, str] = getattr(
    cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {}
)
_class_of_number: Mapping[str, type] = getattr(
    cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {}
)


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


class ReplyPickler:
    """Pickles for a process that this one got its classes from.

    Classes that came from there by value are named by their number: the whole class would be a
    hundred times as much to do. Made after they came.
    """

    def __init__(self) -> None:
        numbers = dict(_number_of_class)

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            def reducer_override(self, obj: Any) -> Any:
                if isinstance(obj, type):
                    number = numbers.get(obj)
                    if number is not None:
                        return _own_class, (number,)
                return super().reducer_override(obj)

        self._pickler = Pickler
        self._is_needed = False

    def dumps(self, value: object, apart_from: int) -> tuple[bytes, list[memoryview]]:
        """Pickle `value` without the buffers of arrays from some size on; return those too."""
        apart: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            data = buffer.raw()
            if len(data) < apart_from:
                return True
            apart.append(data)
            return False

        if not self._is_needed:
            try:
                return pickle.dumps(value, PROTOCOL, buffer_callback=keep), apart
            except Exception:
                apart.clear()
        file = io.BytesIO()
        self._pickler(file, PROTOCOL, buffer_callback=keep).dump(value)
        self._is_needed = True  # Where it helped once it will again.
        return file.getvalue(), apart


def _own_class(number: str) -> type:
    return _class_of_number[number]
