"""Pickling that also handles objects that cannot be imported: lambdas, classes of `__main__`."""

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from wholegrain._core.interruption import is_interruption

BufferCallback = Callable[[pickle.PickleBuffer], object]

PROTOCOL = 5

ByValuePickler = cloudpickle.Pickler
"""The pickler that `dumps_by_value` uses, for writing to a file."""

# cloudpickle gives every class that it pickles by value an id, by which it recognises the class.
_number_of_class: Mapping[type, str] = getattr(
    cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {}
)
_class_of_number: Mapping[str, type] = getattr(
    cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {}
)


def dumps(value: object, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle `value` with `pickle`, or with `cloudpickle` if that fails."""
    try:
        return pickle.dumps(value, PROTOCOL, buffer_callback=buffer_callback)
    except Exception as error:
        if is_interruption(error):
            raise
        return dumps_by_value(value, buffer_callback)


def dumps_by_value(value: object, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle `value`, including classes and functions that cannot be imported elsewhere."""
    data: Any = cloudpickle.dumps(value, PROTOCOL, buffer_callback=buffer_callback)
    return bytes(data)


class ReplyPickler:
    """Pickles values for the process that this one received its classes from.

    A class that arrived by value is sent back by its id, which is about a hundred times cheaper
    than the whole class. Create this object after the classes have arrived.
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
        """Pickle `value`; return buffers of at least `apart_from` bytes out of band."""
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
            except Exception as error:
                if is_interruption(error):
                    raise
                apart.clear()
        file = io.BytesIO()
        self._pickler(file, PROTOCOL, buffer_callback=keep).dump(value)
        self._is_needed = True  # Later elements most likely need it too.
        return file.getvalue(), apart


def _own_class(number: str) -> type:
    return _class_of_number[number]
