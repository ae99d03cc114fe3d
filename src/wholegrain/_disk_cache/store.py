"""The elements of one pipeline on disk: read and written by many threads and processes."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import struct
import threading
import weakref
from typing import Any

import numpy as np

from wholegrain._core.byte_limit import byte_limit
from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._core.types import Indices, NDArray
from wholegrain._disk_cache import folder
from wholegrain._disk_cache.reader import Reader
from wholegrain._disk_cache.records import START, Encoded, Encoder
from wholegrain._workers.layout import aligned

MISSING = object()
"""Stands for an element that is not in the cache."""

_HEAD = struct.Struct("<8sQ48x")  # magic, number of elements
_MAGIC = b"WGELEMS1"
_ENTRY = struct.Struct("<QQ")  # place, length of the record
# A place is the number of a data file and the offset in it, in units of 64 bytes. 0 is none.
_OFFSET_BITS = 40
_UNIT = 64


def index_bytes(length: int) -> int:
    """Return how many bytes the index of this many elements takes."""
    return _HEAD.size + _ENTRY.size * length


class Store:
    """The elements of one pipeline.

    Use `open_store`, which returns the same one for the whole process.

    Args:
        path: The folder of the cache.
        name: The fingerprint of the pipeline.
        length: How many elements the pipeline has.
        about: Describes the pipeline, for people.
        max_bytes: How large the cache may become; None for no limit.
    """

    def __init__(
        self,
        path: str,
        name: str,
        length: int,
        about: dict[str, Any],
        max_bytes: str | float | None,
    ) -> None:
        self._path = path
        self._name = name
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._writer: _Writer | None = None
        self._readers: dict[int, Reader] = {}
        self._entries: NDArray[np.uint64] | None = None
        self._verified = np.zeros(length, np.bool_)
        self._keeps_more = True
        try:
            self._open(length, about)
        except OSError as error:
            self._stop(f"cannot be used: {error}")

    def _open(self, length: int, about: dict[str, Any]) -> None:
        index = os.path.join(self._path, self._name, "index")
        try:
            folder.create(self._path)
            with folder.locked(self._path):
                os.makedirs(os.path.dirname(index), exist_ok=True)
                _describe(os.path.join(self._path, self._name, "pipeline.json"), about)
                if not _is_index(index, length):
                    _make_index(index, length)
                self._entries = _map_index(index, length)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise
            if not _is_index(index, length):
                raise
            self._entries = _map_index(index, length)
            self._stop("cannot be written; what is in it is used")

    # Reading.

    def get(self, position: int) -> Any:
        """Return an element, or `MISSING`."""
        if self._entries is None:
            return MISSING
        place, nbytes = self._entries[position].tolist()
        return self._read(position, place, nbytes) if place else MISSING

    def get_many(self, positions: Indices) -> list[Any]:
        """Return some elements, with `MISSING` for those that are not there."""
        if self._entries is None:
            return [MISSING] * len(positions)
        entries = self._entries[positions].tolist()
        return [
            self._read(position, place, nbytes) if place else MISSING
            for position, (place, nbytes) in zip(positions.tolist(), entries, strict=True)
        ]

    def _read(self, position: int, place: int, nbytes: int) -> Any:
        number, offset = place >> _OFFSET_BITS, (place & (1 << _OFFSET_BITS) - 1) * _UNIT
        try:
            reader = self._readers.get(number)
            if reader is None:
                reader = self._add_reader(number)
            is_verified = self._verified.item(position)
            element = reader.element(position, offset, nbytes, not is_verified)
        except Exception as error:
            if is_interruption(error):
                raise
            # Also a class that cannot be imported any more. The element is computed again.
            logger().warning(
                "Element %d in the cache %r is damaged and computed again: %r",
                *(position, self._path, error),
            )
            return MISSING
        if not is_verified:
            self._verified[position] = True
        return element

    def _add_reader(self, number: int) -> Reader:
        with self._lock:
            if number not in self._readers:
                self._readers[number] = Reader(self._data_file(number))
            return self._readers[number]

    def _data_file(self, number: int) -> str:
        return os.path.join(self._path, self._name, f"data-{number:05d}")

    def missing(self) -> Indices:
        """Return the positions of all elements that are not in the cache."""
        if self._entries is None:
            return np.arange(len(self._verified))
        return np.flatnonzero(self._entries[:, 0] == 0)

    def verify(self) -> tuple[int, int]:
        """Check all elements, drop damaged ones, and return how many there are, and were bad."""
        count = bad = 0
        self._verified[:] = False
        if self._entries is None:
            return 0, 0
        for position in np.flatnonzero(self._entries[:, 0]).tolist():
            count += 1
            if self.get(position) is MISSING:
                bad += 1
                with self._lock:
                    self._writing().enter(position, 0, 0)
        return count, bad

    # Writing.

    @property
    def keeps_more(self) -> bool:
        """Whether elements can be added: False if the cache is full, or cannot be written."""
        return self._keeps_more

    def put(self, position: int, element: Any) -> None:
        """Keep an element. If the cache is full or cannot be written, it is not kept.

        Raises:
            Exception: If the element cannot be pickled.
        """
        if not self._keeps_more:
            return
        with self._lock:
            try:
                self._put(position, element)
            except OSError as error:
                self._stop(f"cannot be written: {error}")

    def _put(self, position: int, element: Any) -> None:
        writer = self._writing()
        encoded = writer.encode(position, element)
        if self._max_bytes is None:
            writer.append(position, encoded)
            return
        with folder.locked(self._path):
            limit = byte_limit(self._max_bytes, self._path)
            nbytes = writer.growth(encoded)
            if folder.make_room(self._path, nbytes, limit, keep=self._name):
                writer.append(position, encoded)
                return
        count = len(self._verified) - len(self.missing())
        self._stop(f"is full. It has {count:,} of {len(self._verified):,} elements")

    def _writing(self) -> _Writer:
        if self._writer is None:
            self._writer = _Writer(os.path.join(self._path, self._name))
        return self._writer

    def _stop(self, why: str) -> None:
        if self._keeps_more:
            self._keeps_more = False
            logger().warning(
                "The cache of elements in %r %s. Other elements are computed each time.",
                *(self._path, why),
            )


class _Writer:
    """The index, and a data file that no other process writes to."""

    def __init__(self, path: str) -> None:
        self._index = self._fd = -1
        self._index = os.open(os.path.join(path, "index"), os.O_WRONLY | os.O_CLOEXEC)
        self._number, self._fd = _take_data_file(path)
        self._size = os.fstat(self._fd).st_size
        # After what a killed process may have written only in part.
        self._end = max(START, aligned(self._size))
        self._encoder = Encoder()

    def encode(self, position: int, element: Any) -> Encoded:
        """Return an element as bytes, to be appended next."""
        return self._encoder.encode(position, element, self._end)

    def growth(self, encoded: Encoded) -> int:
        """Return by how much the file grows if an element is appended."""
        return encoded.offset + encoded.nbytes - self._size

    def append(self, position: int, encoded: Encoded) -> None:
        """Append an element to the data file, and enter it into the index."""
        start, stop = self._end, encoded.offset + encoded.nbytes
        # Whatever interrupts this method, the next element will not overwrite what is there now.
        self._end, self._size = aligned(stop), stop
        _write_all(self._fd, encoded.data, start)
        self.enter(position, self._number << _OFFSET_BITS | encoded.offset // _UNIT, encoded.nbytes)
        if encoded.layout is not None:
            self._encoder.add(encoded.layout)

    def enter(self, position: int, place: int, nbytes: int) -> None:
        """Say in the index where an element is."""
        entry = _ENTRY.pack(place, nbytes)
        _write_all(self._index, [entry], _HEAD.size + _ENTRY.size * position)

    def __del__(self) -> None:
        for fd in (self._index, self._fd):
            if fd >= 0:
                os.close(fd)


def _take_data_file(path: str) -> tuple[int, int]:
    """Return the number and a descriptor of a data file that no other process writes to."""
    number = 0
    while True:
        fd = os.open(
            os.path.join(path, f"data-{number:05d}"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666
        )
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
        except BaseException:
            os.close(fd)
            raise
        else:
            return number, fd
        number += 1


def _write_all(fd: int, parts: list[bytes], offset: int) -> None:
    done = os.pwritev(fd, parts, offset)
    if done == sum(map(len, parts)):
        return
    data = memoryview(b"".join(parts))  # One call writes at most 2 GB, and may be interrupted.
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)


def _is_index(path: str, length: int) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD.size)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return False
    return head == _HEAD.pack(_MAGIC, length) and size == index_bytes(length)


def _make_index(path: str, length: int) -> None:
    new = f"{path}.new"
    with open(new, "wb") as file:
        file.write(_HEAD.pack(_MAGIC, length))
        file.truncate(index_bytes(length))  # The file is sparse: it takes what is entered.
    os.replace(new, path)


def _map_index(path: str, length: int) -> NDArray[np.uint64]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The mapping has a duplicate of the descriptor, so the lock lasts as long as the mapping.
        fcntl.flock(fd, fcntl.LOCK_SH)
        memory = mmap.mmap(fd, index_bytes(length), access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
    return np.frombuffer(memory, "<u8", offset=_HEAD.size).reshape(length, 2)


def _describe(path: str, about: dict[str, Any]) -> None:
    """Write the description of a pipeline, or note that it is used."""
    if os.path.exists(path):
        os.utime(path)
        return
    with open(path, "w") as file:
        json.dump(about, file)


_stores: weakref.WeakValueDictionary[Any, Store] = weakref.WeakValueDictionary()
_stores_lock = threading.Lock()


def _after_fork() -> None:
    global _stores, _stores_lock
    _stores = weakref.WeakValueDictionary()
    _stores_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def open_store(
    path: str,
    name: str,
    length: int,
    about: dict[str, Any],
    max_bytes: str | float | None = None,
) -> Store:
    """Return the elements of a pipeline; the same object as long as it is in use."""
    key = (path, name, length, max_bytes)
    with _stores_lock:
        store = _stores.get(key)
        if store is None:
            store = _stores[key] = Store(path, name, length, about, max_bytes)
        return store
