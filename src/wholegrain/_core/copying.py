"""Copying large arrays into memory that another process reads later."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wholegrain._core.native import lib
from wholegrain._core.types import NDArray

Copy = Callable[[NDArray[Any], NDArray[Any]], None]
"""Copies the second argument into the first."""

# Smaller arrays may still be in the cache when they are read.
_PAST_CACHES_BYTES = 8 << 20

# None without the extension, and on processors without non-temporal stores.
_stream_bytes = getattr(lib, "stream", None)


def copier(nbytes: int) -> Copy:
    """Return a function like `numpy.copyto`, for copies into a buffer of `nbytes` in all.

    If the buffer is larger than the cache, it uses non-temporal stores, which take two thirds of
    the time and do not evict what is in the cache.
    """
    if nbytes < _PAST_CACHES_BYTES or _stream_bytes is None:
        return np.copyto
    return _stream


def _stream(target: NDArray[Any], source: NDArray[Any]) -> None:
    assert _stream_bytes is not None
    if source.dtype == target.dtype and source.shape == target.shape:
        try:
            _stream_bytes(target, source)
        except (BufferError, ValueError):  # Not contiguous, or dates, which have no buffer.
            pass
        else:
            return
    np.copyto(target, source)
