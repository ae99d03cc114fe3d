"""Arrays in named shared memory, for programs that use them directly."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory
from typing import Any, Self

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, slots=True)
class SharedMemoryArrayMetadata:
    """The information that another process needs to open an array in shared memory.

    Args:
        name: The name of the block.
        shape: The shape of the array.
        dtype: Its dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: npt.DTypeLike

    def close_and_unlink_shm(self) -> None:
        """Remove the block. Raises FileNotFoundError if it no longer exists."""
        block = shared_memory.SharedMemory(name=self.name)
        block.close()
        block.unlink()


class SharedMemoryArray(np.ndarray[Any, Any]):
    """A numpy array in a shared-memory block, which another process can open by name.

    Pickling it sends the name, not the data. The block exists until it is removed. Call
    `unlink_on_del()` on the array that should remove it when it is garbage collected.

    Args:
        shape: The shape, with at least one element.
        dtype: The dtype.
    """

    _shm: shared_memory.SharedMemory | None
    _unlink_on_del: bool
    _deleter: ThreadPoolExecutor | None = None
    _outstanding: threading.BoundedSemaphore | None = None

    def __new__(cls, shape: Iterable[int], dtype: npt.DTypeLike = float) -> Self:
        """Make an array of zeros in a new block."""
        shape = tuple(shape)
        if np.dtype(dtype).hasobject:
            raise ValueError(
                "Shared memory cannot hold Python objects: they belong to one process."
            )
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if not nbytes:
            raise ValueError(f"Shared memory cannot hold an array without bytes: shape {shape}.")
        block = shared_memory.SharedMemory(create=True, size=nbytes)
        return cls.from_shared_memory(block, shape, dtype)

    @classmethod
    def from_shared_memory(
        cls, shm: shared_memory.SharedMemory, shape: Iterable[int], dtype: npt.DTypeLike
    ) -> Self:
        """Return the array in an open block."""
        array = super().__new__(cls, tuple(shape), dtype, buffer=shm.buf)
        array._shm = shm
        array._unlink_on_del = False
        return array

    @classmethod
    def from_metadata(cls, metadata: SharedMemoryArrayMetadata) -> Self:
        """Open the array of another process.

        Raises:
            FileNotFoundError: If its block no longer exists.
        """
        block = shared_memory.SharedMemory(name=metadata.name)
        return cls.from_shared_memory(block, metadata.shape, metadata.dtype)

    def __array_finalize__(self, obj: Any) -> None:
        # A view shares the block but does not own it. A copy has no block.
        self._unlink_on_del = False
        base = getattr(obj, "_shm", None)
        self._shm = base if base is not None and np.may_share_memory(self, obj) else None

    def __array_wrap__(self, obj: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if obj is self:
            return obj  # The result was written into this array, as by `+=`.
        return obj[()] if return_scalar or not obj.ndim else np.asarray(obj)

    @property
    def shm(self) -> shared_memory.SharedMemory | None:
        """The block, or None for a copy."""
        return self._shm

    @property
    def metadata(self) -> SharedMemoryArrayMetadata:
        """The information that another process needs to open this array."""
        if self._shm is None or not self._begins(self._shm):
            raise ValueError(
                "Only a whole array in shared memory can be opened by its name, not a copy or a"
                " part of one."
            )
        return SharedMemoryArrayMetadata(self._shm.name, self.shape, self.dtype)

    def _begins(self, shm: shared_memory.SharedMemory) -> bool:
        """Return whether this array starts at the beginning of the block."""
        block: np.ndarray[Any, Any] = np.ndarray((1,), np.uint8, buffer=shm.buf)
        return bool(self.flags.c_contiguous) and self.ctypes.data == block.ctypes.data

    def unlink_on_del(self) -> None:
        """Remove the block when this array is garbage collected."""
        self._unlink_on_del = True

    def __reduce__(self) -> Any:
        if self._shm is None or not self._begins(self._shm):
            return super().__reduce__()
        return type(self).from_metadata, (self.metadata,)

    @classmethod
    def enable_async_del(cls, num_threads: int = 1, max_outstanding_requests: int = 50) -> None:
        """Close blocks in background threads, up to `max_outstanding_requests` at a time."""
        if cls._deleter is None:
            cls._deleter = ThreadPoolExecutor(num_threads, "wholegrain-unlink")
            cls._outstanding = threading.BoundedSemaphore(max_outstanding_requests)

    @classmethod
    def close_shm_async(cls, shm: shared_memory.SharedMemory, unlink: bool) -> None:
        """Close a block in the background, and remove it if `unlink` is true."""
        outstanding = cls._outstanding
        if cls._deleter is None or outstanding is None or not outstanding.acquire(blocking=False):
            _close(shm, unlink)
            return
        try:
            future = cls._deleter.submit(_close, shm, unlink)
        except RuntimeError:  # The interpreter is shutting down.
            outstanding.release()
            _close(shm, unlink)
            return
        future.add_done_callback(lambda _: outstanding.release())

    def __del__(self) -> None:
        if getattr(self, "_unlink_on_del", False) and self._shm is not None:
            type(self).close_shm_async(self._shm, unlink=True)
            self._shm = None


def _close(shm: shared_memory.SharedMemory, unlink: bool) -> None:
    if unlink:
        with contextlib.suppress(FileNotFoundError):
            shm.unlink()
    # If a view still uses the mapping, it is closed together with that view.
    with contextlib.suppress(BufferError):
        shm.close()
