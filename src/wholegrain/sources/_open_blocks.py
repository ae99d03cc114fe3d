"""The blocks of caches that this process has open, and those that it is fetching."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future

from wholegrain._core.interruption import suppress_errors
from wholegrain.sources._handles import most_open_files
from wholegrain.sources.cache import USE_S, Cache

# A deleted block takes space until nobody has it open any more. So a process keeps only some open:
# this share of what the cache may take, but at least a few.
_OPEN_SHARE = 1 / 64
_FEWEST_OPEN = 16
# A system call for each part of a chunk would let other threads run, and then wait for them.
_CHECK_EVERY_S = 0.05


class TruncatedError(Exception):
    """The file of a block was truncated while it was open."""


class Block:
    """The content of a block: in memory, or a file that is mapped to memory."""

    def __init__(self, memory: bytes | mmap.mmap, path: str = "") -> None:
        self.was_used = False
        self._memory = memory
        self._path = path
        self._check_at = 0.0
        self._noted_at = time.monotonic()

    def memory(self, now: float) -> bytes | mmap.mmap:
        """Return the content, which may be followed by other bytes.

        After the end of a truncated file there are zeros, or what kills the process. The cache
        never truncates a file, so it is enough to look at the size now and then.
        """
        if now > self._check_at and isinstance(self._memory, mmap.mmap):
            if self._memory.size() < len(self._memory):
                raise TruncatedError
            self._check_at = now + _CHECK_EVERY_S
            if now - self._noted_at > USE_S:
                self._noted_at = now
                with suppress_errors(OSError):  # It may be deleted.
                    os.utime(self._path)
        return self._memory


class OpenBlocks:
    """The blocks that this process has open, and those that a thread is fetching, by path."""

    def __init__(self) -> None:
        self.blocks: OrderedDict[str, Block] = OrderedDict()
        self._lock = threading.Lock()
        self._fetching: dict[str, Future[Block | None]] = {}

    def open(self, cache: Cache, path: str) -> Block | None:
        """Return a block if it is in the cache."""
        fd = cache.open_block(os.path.basename(path))
        if fd is None:
            return None
        try:
            # The mapping has a duplicate of the descriptor.
            block = Block(mmap.mmap(fd, 0, access=mmap.ACCESS_READ), path)
        except (OSError, ValueError):  # No descriptor is free, or the file is empty by now.
            return None
        finally:
            os.close(fd)
        most = max(_FEWEST_OPEN, int(cache.limit() * _OPEN_SHARE) // cache.block_bytes)
        most = min(most, most_open_files() // 6)
        with self._lock:
            self.blocks[path] = block
            while len(self.blocks) > most:
                oldest, other = self.blocks.popitem(last=False)
                if other.was_used:  # Since it was last the oldest.
                    other.was_used = False
                    self.blocks[oldest] = other
        return block

    def close(self, path: str) -> None:
        """Forget an open block."""
        with self._lock:
            self.blocks.pop(path, None)

    def claim(self, path: str, number: int, mine: list[int]) -> Future[Block | None] | None:
        """Return the future of a block that another thread fetches; None if this one has to.

        In that case, `number` is added to `mine`, also if this thread is interrupted after that.
        """
        with self._lock:
            if path in self._fetching:
                return self._fetching[path]
            mine.append(number)
            self._fetching[path] = Future()
            return None

    def fulfil(self, path: str, block: Block | None) -> None:
        """Give a claimed block to the threads that wait for it; None if it was not read."""
        with self._lock:
            future = self._fetching.pop(path, None)
        if future is not None:
            future.set_result(block)


_of_process: tuple[int, OpenBlocks] | None = None


def open_blocks() -> OpenBlocks:
    """Return the open blocks of this process. A forked child has its own."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), OpenBlocks())
    return _of_process[1]
