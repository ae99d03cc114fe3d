"""Digests of elements, which are the same in every process and on every machine."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

EMPTY = hashlib.sha256().hexdigest()
"""The running digest before the first element."""


def element_digest(element: Any) -> str:
    """Return a digest of everything in an element: structure, types, shapes and values.

    The order of the keys of dicts does not matter. Arrays of other libraries, such as jax's, count
    as numpy's.
    """
    # SHA-256 is in the hardware of most processors. It takes 1.4 GB/s here, and BLAKE2b 0.8.
    content = hashlib.sha256()
    _add(content, element)
    return content.hexdigest()


def after(running: str, digest: str) -> str:
    """Return the running digest after one more element."""
    return hashlib.sha256(bytes.fromhex(running) + bytes.fromhex(digest)).hexdigest()


def _add(content: Any, value: Any) -> None:
    """Add the canonical bytes of a value. Each part begins with its kind and its length."""
    match value:
        case None | bool():
            content.update(f"{value};".encode())
        case np.ndarray() | np.generic():
            _add_array(content, np.asarray(value))
        case int():
            content.update(f"int {value};".encode())
        case float():
            content.update(b"float " + struct.pack("<d", value))
        case complex():
            content.update(b"complex " + struct.pack("<dd", value.real, value.imag))
        case str():
            text = value.encode(errors="surrogatepass")
            content.update(f"str {len(text)};".encode() + text)
        case bytes() | bytearray() | memoryview():
            content.update(f"bytes {len(value)};".encode())
            content.update(value)
        case Mapping():
            content.update(f"dict {len(value)};".encode())
            for key in sorted(value, key=repr):
                _add(content, key)
                _add(content, value[key])
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            content.update(f"{kind} {len(value)};".encode())
            for part in value:
                _add(content, part)
        case _:
            _add_other(content, value)


def _add_array(content: Any, array: Any) -> None:
    if array.dtype.hasobject:
        content.update(f"array {array.shape};".encode())
        for part in array.reshape(-1).tolist():
            _add(content, part)
        return
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not _IS_LITTLE):
        array = array.astype(array.dtype.newbyteorder("<"))
    content.update(f"array {array.dtype.str} {array.shape};".encode())
    array = np.ascontiguousarray(array)
    # A view of bytes, because dates and texts have no buffer of their own.
    content.update(array.reshape(-1).view(np.uint8) if array.size and array.itemsize else b"")


_IS_LITTLE = np.little_endian


def _add_other(content: Any, value: Any) -> None:
    if hasattr(value, "__array__"):
        _add_array(content, np.asarray(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        content.update(f"{type(value).__qualname__};".encode())
        _add(content, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    else:
        try:
            packed = pickle.dumps(value, protocol=4)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise TypeError(
                f"An element has a part of the type {type(value).__qualname__}, which has no"
                " digest, because it cannot be pickled. Leave it out with a `map` at the end."
            ) from error
        content.update(f"{type(value).__qualname__} {len(packed)};".encode() + packed)
