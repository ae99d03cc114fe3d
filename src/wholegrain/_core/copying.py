"""Copies of large arrays into memory that somebody else reads later."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wholegrain._core.native import lib
from wholegrain._core.types import NDArray

Copy = Callable[[NDArray[Any], NDArray[Any]], None]
"""Copies its second argument into its first."""

# Of what is smaller, a cache may still have something when it is read.
_PAST_CACHES_BYTES = 8 << 20

# Missing without the extension, and on processors without such stores.
_stream_bytes = getattr(lib, "stream", None)


def copier(nbytes: int) -> Copy:
    """Return how to copy into parts of a whole of `nbytes`: as `numpy.copyto` does.

    What is larger than a cache is copied past the caches, which takes two thirds of the time and
    leaves in them what is in use.
    """
    if nbytes < _PAST_CACHES_BYTES or _stream_bytes is None:
        return np.copyto
    return _stream


def _stream(target: NDArray[Any], source: NDArray[Any]) -> None:
    assert _stream_bytes is not None
    if source.dtype == target.dtype and source.shape == target.shape:
        try:
            _stream_bytes(target, source)
        except (BufferError, ValueError):  # Not contiguous; dates, which have no buffer.
            pass
        else:
            return
    np.copyto(target, source)
