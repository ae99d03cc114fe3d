"""Values in one block of shared memory, read by all workers without copies.

Layout of the block, all numbers 64-bit little-endian:

    magic | count | count x (offset, capacity, length, kind) | values, each in its slot

Unlike in the standard library's `ShareableList`, the base class, an entry stores the length of a
string, so trailing zero bytes are kept.
"""

import mmap
import operator
import os
import struct
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import ShareableList, SharedMemory
from typing import Any, SupportsIndex

from wholegrain._core.types import Indices

_MAGIC = 0x3130_5453_494C_4757  # "WGLIST01" in memory
_HEAD = struct.Struct("<qq")
_ENTRY = struct.Struct("<qqqq")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_INTEGER, _REAL, _BOOL, _STR, _BYTES, _NONE = range(6)
_SLOT = 8


class SharedMemoryDataSource(ShareableList[Any]):
    """A list of numbers, strings, bytes, bools and Nones in shared memory.

    Worker processes attach to the memory by its name instead of copying the values. The process
    that created it removes it when nothing refers to the source any more. If the memory has a given
    name, or was pickled and may be in use elsewhere, it is removed when the process ends.

    Args:
        elements: The values. Leave it out to attach to an existing source.
        name: The name of the memory; random by default.

    Example:
        >>> source = SharedMemoryDataSource(["a", "b", "c"])
        >>> ds = wg.MapDataset.source(source).map(str.upper)
    """

    shm: SharedMemory
    _removal: "weakref.finalize[Any, Any] | None" = None  # none in processes that only attach

    def __init__(self, elements: Sequence[Any] | None = None, *, name: str | None = None) -> None:
        if elements is not None:
            self._create(elements, name)
        elif name is not None:
            self._attach(name)
        else:
            raise ValueError(
                "`SharedMemoryDataSource` needs `elements` to hold, or the `name` of an existing"
                " one to attach to, but got neither."
            )

    def _create(self, elements: Iterable[Any], name: str | None) -> None:
        encoded = [_encode(index, value) for index, value in enumerate(elements)]
        start = _HEAD.size + _ENTRY.size * len(encoded)
        capacities = [_capacity(kind, data) for kind, data in encoded]
        self.shm = SharedMemory(name=name, create=True, size=start + sum(capacities))
        self._removal = weakref.finalize(self, _remove, self.shm, os.getpid())
        if name is not None:
            self._remove_at_exit()
        self._length = len(encoded)
        buffer = self.shm.buf
        assert buffer is not None
        _HEAD.pack_into(buffer, 0, _MAGIC, self._length)
        for index, ((kind, data), capacity) in enumerate(zip(encoded, capacities, strict=True)):
            entry = (start, capacity, len(data), kind)
            _ENTRY.pack_into(buffer, _HEAD.size + _ENTRY.size * index, *entry)
            buffer[start : start + len(data)] = data
            start += capacity

    def _attach(self, name: str) -> None:
        self.shm = _attached(name)
        magic, self._length = 0, 0
        if self.shm.buf is not None and self.shm.size >= _HEAD.size:
            magic, self._length = _HEAD.unpack_from(self.shm.buf)
        if magic != _MAGIC:
            self.shm.close()
            raise ValueError(
                f"The shared memory {name!r} was not created by `SharedMemoryDataSource`."
            )

    def _remove_at_exit(self) -> None:
        if self._removal is not None and self._removal.detach():
            self._removal = weakref.finalize(_until_exit, _remove, self.shm, os.getpid())

    def _find(self, position: SupportsIndex) -> tuple[memoryview, int, tuple[int, int, int, int]]:
        """Return the memory, and the offset and content of an element's table entry."""
        index = operator.index(position)
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(
                f"Element {operator.index(position)} was requested, but {self!r} has"
                f" {self._length} elements."
            )
        buffer = self.shm.buf
        if buffer is None:
            raise ValueError(f"{self!r} has been closed, so its elements cannot be read.")
        at = _HEAD.size + _ENTRY.size * index
        return buffer, at, _ENTRY.unpack_from(buffer, at)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: SupportsIndex) -> Any:
        buffer, _, (offset, _, length, kind) = self._find(position)
        if kind == _INTEGER:
            return _INT.unpack_from(buffer, offset)[0]
        if kind == _REAL:
            return _FLOAT.unpack_from(buffer, offset)[0]
        if kind == _NONE:
            return None
        data = bytes(buffer[offset : offset + length])
        if kind == _BYTES:
            return data
        return data.decode() if kind == _STR else data != b"\0"

    def __getitems__(self, positions: Sequence[SupportsIndex] | Indices) -> list[Any]:
        """Return the elements at `positions`, in that order."""
        return [self[position] for position in positions]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self._length))

    def __setitem__(self, position: SupportsIndex, value: Any) -> None:
        buffer, at, (offset, capacity, _, _) = self._find(position)
        kind, data = _encode(operator.index(position), value)
        if len(data) > capacity:
            raise ValueError(
                f"Element {operator.index(position)} has room for {capacity} bytes, but the new"
                f" value needs {len(data)}. Create a new source to store larger values."
            )
        buffer[offset : offset + len(data)] = data
        _ENTRY.pack_into(buffer, at, offset, capacity, len(data), kind)

    @property
    def format(self) -> str:
        """How the elements are stored, in the notation of the `struct` module."""
        fixed = {_INTEGER: "q", _REAL: "d", _BOOL: "xxxxxxx?", _NONE: "xxxxxx?x"}
        entries = (self._find(index)[2] for index in range(self._length))
        return "".join(fixed.get(kind, f"{capacity}s") for _, capacity, _, kind in entries)

    def close(self) -> None:
        """Detach from the memory in this process. Other processes can still read it."""
        self.shm.close()

    def unlink(self) -> None:
        """Remove the memory. Processes that are attached keep it until they close it."""
        if self._removal is not None:
            self._removal.detach()
        self.shm.unlink()

    def __reduce__(self) -> tuple[Any, ...]:
        # The process that unpickles it may attach after this object is gone.
        self._remove_at_exit()
        return _attach_source, (type(self), self.shm.name)

    def __str__(self) -> str:
        return f"InMemoryDataSource(name={self.shm.name}, len={self._length})"

    def __repr__(self) -> str:
        # Without values or a random name, because checkpoints save and compare it.
        return f"{type(self).__name__}(len={self._length})"


class _UntilExit:
    """Lives as long as the process, so that its finalizers run when the process ends."""


_until_exit = _UntilExit()


def _attach_source(cls: type[SharedMemoryDataSource], name: str) -> SharedMemoryDataSource:
    return cls(name=name)


def _encode(index: int, value: Any) -> tuple[int, bytes]:
    """Return the kind of a value and its bytes."""
    if value is None:
        return _NONE, b""
    if isinstance(value, bool):
        return _BOOL, b"\1" if value else b"\0"
    if isinstance(value, int):
        try:
            return _INTEGER, _INT.pack(value)
        except struct.error:
            raise OverflowError(
                f"Element {index} is {value}, but shared memory holds 64-bit integers, from"
                " -2**63 to 2**63 - 1."
            ) from None
    if isinstance(value, float):
        return _REAL, _FLOAT.pack(value)
    if isinstance(value, str):
        return _STR, value.encode()
    if isinstance(value, bytes):
        return _BYTES, bytes(value)
    raise TypeError(
        f"Element {index} is of type {type(value).__name__}, but shared memory holds int, float,"
        " bool, str, bytes and None. Convert it first; numpy scalars with `.item()`."
    )


def _capacity(kind: int, data: bytes) -> int:
    return _SLOT * (len(data) // _SLOT + 1) if kind in (_STR, _BYTES) else _SLOT


def _remove(shm: SharedMemory, pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child must not remove its parent's memory
    try:
        shm.unlink()
    except FileNotFoundError:
        # Another process removed it: tell the resource tracker that nothing is left to clean up.
        resource_tracker.unregister(shm._name, "shared_memory")  # type: ignore[attr-defined]  # noqa: SLF001
    shm.close()


if sys.version_info >= (3, 13):

    def _attached(name: str) -> SharedMemory:
        return SharedMemory(name=name, track=False)

elif sys.platform == "win32":

    def _attached(name: str) -> SharedMemory:
        return SharedMemory(name=name)

else:
    import _posixshmem  # type: ignore[import-not-found]

    class _Attached(SharedMemory):
        """Memory of another process, which this one does not remove when it ends.

        Before Python 3.13 the standard library's class cannot do this: a process that
        attached would remove the memory for all others when it ends.
        """

        def __init__(self, name: str) -> None:
            self._name = f"/{name}"
            self._fd = _posixshmem.shm_open(self._name, os.O_RDWR, mode=0o600)
            try:
                self._size = os.fstat(self._fd).st_size
                self._mmap = mmap.mmap(self._fd, self._size)
            except (OSError, ValueError):
                os.close(self._fd)
                raise
            self._buf = memoryview(self._mmap)

        def unlink(self) -> None:
            _posixshmem.shm_unlink(self._name)

    def _attached(name: str) -> SharedMemory:
        return _Attached(name)
