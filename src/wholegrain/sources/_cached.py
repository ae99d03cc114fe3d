"""Objects in stores, read through the cache on local disk if there is one."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from wholegrain._core.log import logger
from wholegrain._state import data_version
from wholegrain.sources import _remote
from wholegrain.sources._errors import ForbiddenFileError, UnreadableFileError
from wholegrain.sources.cache import Cache, block_name
from wholegrain.sources.remote_options import RemoteOptions, options_for

T = TypeVar("T")

# A deleted block takes space until nobody has it open any more, so only a few are kept open.
_MOST_OPEN = 128
_MOST_NAMES = 1 << 16
# How long to ask a store about an object that the cache knows too, and how long not to ask a store
# again that did not answer.
_PATIENCE_S = 10.0
_AWAY_S = 60.0
# How many objects are asked about at the same time.
_MOST_ASKED = 32


class RemoteObject:
    """An object in a store, as it was when it was opened. Several threads may read at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._cache = options_for(url).cache
        self._names: dict[int, str] = {}
        self._info = info(url)
        self.size = self._info.size
        self.tag = self._info.tag
        if self._cache is not None and not self._info.tag:
            logger().warning("%s is not cached: the store does not say when it changes.", url)
            self._cache = None

    def read_ranges(self, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """Return the bytes from each start up to its stop, which is within the object."""
        if self._cache is None:
            return _remote.fetch(self.url, self._info, starts, stops)
        size = self._cache.block_bytes
        pairs = list(zip(starts, stops, strict=True))
        wanted = {start // size for start, _ in pairs}
        if any(start // size != (stop - 1) // size for start, stop in pairs):
            wanted = {
                number
                for start, stop in pairs
                if start < stop
                for number in range(start // size, (stop - 1) // size + 1)
            }
        blocks = self._blocks(self._cache, wanted)
        try:
            return [_cut(blocks, size, start, stop) for start, stop in pairs]
        except _TruncatedError:
            # Whoever opens such a block again finds the damage, and replaces it.
            for number in wanted:
                _open_blocks().close(self._cache, self._name(self._cache, number))
            return _remote.fetch(self.url, self._info, starts, stops)

    def _blocks(self, cache: Cache, numbers: Collection[int]) -> dict[int, _Block]:
        """Return blocks from the cache, or from the store, which the cache then keeps."""
        open_blocks = _open_blocks()
        found: dict[int, _Block] = {}
        mine: list[int] = []
        others: dict[int, Future[_Block | None]] = {}
        try:
            for number in sorted(numbers):
                block = open_blocks.get(cache, self._name(cache, number))
                if block is not None:
                    found[number] = block
                    continue
                waiting = open_blocks.claim(cache, self._name(cache, number), number, mine)
                if waiting is not None:
                    others[number] = waiting
            found |= self._fetch(cache, mine)
        finally:
            for number in mine:
                open_blocks.fulfil(cache, self._name(cache, number), found.get(number))
        missing = []
        for number, future in others.items():
            block = _result(future, options_for(self.url))
            if block is None:
                missing.append(number)
            else:
                found[number] = block
        return found | self._fetch(cache, missing)

    def _fetch(self, cache: Cache, numbers: list[int]) -> dict[int, _Block]:
        """Read blocks from the store, and keep them in the cache."""
        if not numbers:
            return {}
        starts = [number * cache.block_bytes for number in numbers]
        stops = [min(start + cache.block_bytes, self.size) for start in starts]
        blocks = _remote.fetch(self.url, self._info, starts, stops)
        for number, data in zip(numbers, blocks, strict=True):
            cache.write_block(self._name(cache, number), data)
        return {number: _Block(data=data) for number, data in zip(numbers, blocks, strict=True)}

    def _name(self, cache: Cache, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            name = block_name(self.url, self.size, self._info.tag, cache.block_bytes, number)
            self._names[number] = name
        return name


def _result(future: Future[_Block | None], options: RemoteOptions) -> _Block | None:
    """Wait for a block that another thread fetches; None if it fails or takes too long."""
    try:
        return future.result(timeout=options.timeout_s)
    except TimeoutError:
        return None


class _TruncatedError(Exception):
    """The file of a block was truncated while it was open."""


class _Block:
    """The content of a block: in memory, or in an open file."""

    def __init__(self, data: bytes | None = None, fd: int = -1) -> None:
        self._data = data
        self._fd = fd

    def read(self, offset: int, length: int) -> bytes:
        if self._data is not None:
            return self._data[offset : offset + length]
        data = os.pread(self._fd, length, offset)
        if len(data) != length:
            raise _TruncatedError
        return data

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _cut(blocks: dict[int, _Block], size: int, start: int, stop: int) -> bytes:
    """Return bytes `start` to `stop - 1` of an object, from its blocks."""
    number, offset = divmod(start, size)
    if stop - start <= size - offset:
        return blocks[number].read(offset, stop - start) if start < stop else b""
    pieces = []
    while start < stop:
        number, offset = divmod(start, size)
        pieces.append(blocks[number].read(offset, min(stop - start, size - offset)))
        start += len(pieces[-1])
    return b"".join(pieces)


class _OpenBlocks:
    """The blocks that this process has open, and those that a thread is fetching."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, str], _Block] = OrderedDict()
        self._fetching: dict[tuple[str, str], Future[_Block | None]] = {}

    def get(self, cache: Cache, name: str) -> _Block | None:
        """Return a block if it is in the cache."""
        key = (cache.directory, name)
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
        fd = cache.open_block(name)
        if fd is None:
            return None
        block = _Block(fd=fd)
        with self._lock:
            self._blocks[key] = block
            while len(self._blocks) > _MOST_OPEN:
                self._blocks.popitem(last=False)
        return block

    def close(self, cache: Cache, name: str) -> None:
        """Forget an open block."""
        with self._lock:
            self._blocks.pop((cache.directory, name), None)

    def claim(
        self, cache: Cache, name: str, number: int, mine: list[int]
    ) -> Future[_Block | None] | None:
        """Return the future of a block that another thread fetches; None if this one has to.

        In that case, `number` is added to `mine`, also if this thread is interrupted after that.
        """
        key = (cache.directory, name)
        with self._lock:
            if key in self._fetching:
                return self._fetching[key]
            mine.append(number)
            self._fetching[key] = Future()
            return None

    def fulfil(self, cache: Cache, name: str, block: _Block | None) -> None:
        """Give a claimed block to the threads that wait for it; None if it was not read."""
        with self._lock:
            future = self._fetching.pop((cache.directory, name), None)
        if future is not None:
            future.set_result(block)


_of_process: tuple[int, _OpenBlocks] | None = None


def _open_blocks() -> _OpenBlocks:
    """Return the open blocks of this process. A forked child has its own."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), _OpenBlocks())
    return _of_process[1]


_away_until: dict[str, float] = {}


def _unless_away(url: str, ask: Callable[[str, float], T]) -> T | None:
    """Ask a store about something that the cache knows too; None if it does not answer."""
    bucket = "/".join(url.split("/")[:3])
    if time.monotonic() < _away_until.get(bucket, 0.0):
        return None
    try:
        return ask(url, _PATIENCE_S)
    except ForbiddenFileError:
        raise
    except UnreadableFileError as error:
        _away_until[bucket] = time.monotonic() + _AWAY_S
        logger().warning("%s cannot be reached; reading from the cache. %s", bucket, error)
        return None


def info(url: str) -> _remote.ObjectInfo:
    """Return the size and the identity of an object; from the cache if the store is down."""
    cache = options_for(url).cache
    if cache is None:
        return _remote.info(url)
    known = cache.recall(url)
    if known is not None and "size" in known:
        remembered = _remote.ObjectInfo(int(known["size"]), str(known["tag"]))
        found = _unless_away(url, _remote.info)
        if found is None:
            return remembered
    else:
        found = _remote.info(url)
    cache.remember(url, {"size": found.size, "tag": found.tag, "block_bytes": cache.block_bytes})
    return found


def is_within_reach(url: str) -> bool:
    """Return whether it is worth asking for an object: False if the store does not answer soon.

    Raises:
        MissingFileError: If the store says that there is none.
    """
    cache = options_for(url).cache
    if cache is None or cache.recall(url) is not None:
        return True
    return _unless_away(url, _remote.info) is not None


def list_under(url: str) -> list[str]:
    """Return the keys of all objects under a folder; from the cache if the store is down."""
    cache = options_for(url).cache
    if cache is None:
        return _remote.list_objects(url)
    folder = f"{url.rstrip('/')}/"
    known = cache.recall(folder)
    if known is not None and "keys" in known:
        found = _unless_away(url, _remote.list_objects)
        if found is None:
            return list(known["keys"])
    else:
        found = _remote.list_objects(url)
    cache.remember(folder, {"keys": found})
    return found


def _versions(urls: list[str]) -> list[str]:
    """Return what changes when the objects at some addresses do."""
    with ThreadPoolExecutor(min(_MOST_ASKED, len(urls))) as pool:
        return list(pool.map(_version, urls))


def _version(url: str) -> str:
    try:
        found = info(url)
    except (OSError, ImportError):
        return ""  # Only the library of its format can read it.
    return f"{found.size} {found.tag}"


data_version.objects = _versions
