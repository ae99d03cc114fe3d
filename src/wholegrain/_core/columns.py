"""The values of a column one after another, made when they are asked for."""

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from wholegrain._core import native
from wholegrain._core.types import NDArray

# Of these, any bytes are a number.
_KINDS = "iuf"


def values_of(array: NDArray[Any]) -> Iterable[Any]:
    """Return what iterates over an array of one dimension as the array itself does, but quicker."""
    kind = array.dtype
    if native.lib is None or kind.kind not in _KINDS or not _is_behind_head(kind):
        return array
    return native.lib.Numbers(array, kind.type)


@functools.lru_cache(maxsize=64)
def _is_behind_head(kind: np.dtype[Any]) -> bool:
    """Return whether a scalar's value lies right behind what all Python objects begin with.

    It does; but numpy does not promise it, so that it is seen on some that are made for it.
    """
    if not kind.isnative or kind.type.__basicsize__ < object.__basicsize__ + kind.itemsize:
        return False
    for first in (1, 33):
        value = bytes(range(first, first + kind.itemsize))
        (scalar,) = np.frombuffer(value, kind)
        if ctypes.string_at(id(scalar) + object.__basicsize__, kind.itemsize) != value:
            return False
    return True
