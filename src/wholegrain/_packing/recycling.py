"""Memory for packed rows, reused when the rows of an earlier batch are gone.

The first write to newly allocated memory is slow, because it causes a page fault for every 4 KB.
In packing, page faults would take most of the time.
"""

import collections
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from wholegrain._core.types import NDArray

_Memory = NDArray[np.uint8]


class RecycledArrays:
    """Allocates arrays, and reuses their memory when nothing refers to it any more.

    Args:
        max_spare: How many free blocks are kept for later arrays.
    """

    def __init__(self, max_spare: int) -> None:
        self._spare: collections.deque[_Memory] = collections.deque(maxlen=max_spare)

    def full(self, shape: tuple[int, ...], fill_value: Any, dtype: npt.DTypeLike) -> NDArray[Any]:
        """Return an array filled with `fill_value`, or with zeros if it is None."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biufc" or not nbytes:
            array = np.zeros(shape, dtype)
        else:
            memory = self._find(nbytes)
            if fill_value is None:
                memory.fill(0)
            array = np.asarray(_Lease(memory, shape, dtype, self._spare))
        if fill_value is not None:
            array[...] = fill_value
        return array

    def _find(self, nbytes: int) -> _Memory:
        for _ in range(len(self._spare)):
            try:
                memory = self._spare.popleft()
            except IndexError:
                break
            if memory.nbytes == nbytes:
                return memory
            self._spare.append(memory)
        return np.empty(nbytes, np.uint8)


class _Lease:
    """The base object of an array and all its views: it is collected after the last of them."""

    def __init__(
        self,
        memory: _Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        spare: collections.deque[_Memory],
    ) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (memory.ctypes.data, False),
        }
        self._memory = memory
        self._spare = spare

    def __del__(self) -> None:
        self._spare.append(self._memory)
