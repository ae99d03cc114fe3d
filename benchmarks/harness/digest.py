"""A fingerprint of elements: equal in two processes when the elements are equal."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any


def digest(items: Iterable[Any]) -> str:
    """Hash values, dtypes, shapes and structure of `items`, in order."""
    state = hashlib.sha256()
    for item in items:
        _add(state, item)
    return state.hexdigest()[:16]


def _add(state: "hashlib._Hash", item: Any) -> None:
    if isinstance(item, Mapping):
        state.update(f"dict{len(item)}".encode())
        for key, value in item.items():
            state.update(repr(key).encode())
            _add(state, value)
    elif isinstance(item, list | tuple):
        state.update(f"{type(item).__name__}{len(item)}".encode())
        for value in item:
            _add(state, value)
    elif hasattr(item, "dtype"):
        array = item.numpy() if hasattr(item, "numpy") else item
        state.update(f"{array.dtype}{array.shape}".encode())
        state.update(array.tobytes())
    else:
        state.update(f"{type(item).__name__}{item!r}".encode())
