"""The recorded values of Grain: `tests/golden/*.json`, decoded."""

import functools
import json
import types
from pathlib import Path
from typing import Any

import numpy as np

_FOLDER = Path(__file__).parent.parent / "golden"


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return the content of a file of recorded values."""
    content: dict[str, Any] = json.loads((_FOLDER / name).read_text())
    return content


def decode(value: Any) -> Any:
    """Return the element or state that was recorded as `value`."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$nd": [dtype, shape, flat]}:
            return _array(np.dtype(dtype), flat).reshape(shape)
        case {"$np": [dtype, scalar]}:
            return np.dtype(dtype).type(scalar)
        case {"$t": items}:
            return tuple(decode(item) for item in items)
        case {"$obj": items}:
            array = np.empty(len(items), dtype=object)
            array[:] = [decode(item) for item in items]
            return array
    return {key: decode(item) for key, item in value.items()}


def _array(dtype: np.dtype[Any], flat: list[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind == "S":
        flat = [text.encode() for text in flat]
    return np.array(flat, dtype=dtype)


def namespace(package: types.ModuleType) -> dict[str, Any]:
    """Return the names that the recorded expressions use, made with `package`."""
    names: dict[str, Any] = {"G": package, "X": package.experimental}
    exec(load("golden_dataset.json")["prelude"], names)
    return names
