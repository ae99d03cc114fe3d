"""Reads elements from a data file of the cache."""

import os
from typing import Any

import numpy as np

from wholegrain._disk_cache.records import BODY_START, DamagedError, Decoder, has_arrays

# Records of fewer bytes are copied once more, and then arrays do not keep all of the record alive.
_LARGE = 1 << 15
# Memory for records that are unpickled: how large it may be, and how much of it is kept.
_MOST_SCRATCH = 1 << 23
_MOST_SCRATCHES = 8
_scratch: list[bytearray] = []


class Reader:
    """A data file that is read.

    Its memory is not mapped, because a page that has to be read from disk would stop all threads. A
    system call releases the GIL.
    """

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._decode = Decoder(self._read).decode

    def element(self, index: int, offset: int, nbytes: int, verifies: bool) -> Any:
        """Return the element whose record is at an offset; raise if it is damaged."""
        if nbytes < _LARGE:
            data = os.pread(self._fd, nbytes, offset)
            if len(data) != nbytes:
                raise DamagedError
            return self._decode(index, data, verifies)
        if nbytes > os.fstat(self._fd).st_size - offset:
            raise DamagedError
        if nbytes > _MOST_SCRATCH or has_arrays(self._read(offset, BODY_START)):
            record: Any = np.empty(nbytes, np.uint8)  # Arrays of the element view it.
            self._fill(record.data, offset)
            return self._decode(index, record, verifies)
        # Unpickling copies. Memory that was in use before needs no new pages, which cost more than
        # reading into them.
        scratch = _scratch.pop() if _scratch else bytearray()
        if len(scratch) < nbytes:
            scratch = bytearray(nbytes)
        with memoryview(scratch)[:nbytes] as view:
            self._fill(view, offset)
            element = self._decode(index, view, verifies)
        if len(_scratch) < _MOST_SCRATCHES:
            _scratch.append(scratch)
        return element

    def _read(self, offset: int, nbytes: int) -> bytes:
        data = os.pread(self._fd, nbytes, offset)
        if len(data) != nbytes:
            raise DamagedError
        return data

    def _fill(self, memory: memoryview, offset: int) -> None:
        done = 0
        while done < len(memory):  # One call reads at most 2 GB, and may be interrupted.
            count = os.preadv(self._fd, [memory[done:]], offset + done)
            if not count:
                raise DamagedError
            done += count

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
