"""Objects in stores, read through the cache on local disk if there is one."""

from __future__ import annotations

import bisect
import mmap
import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from wholegrain._core.log import logger
from wholegrain._core.types import Indices
from wholegrain._state import data_version
from wholegrain.sources import _listing, _remote
from wholegrain.sources._errors import ForbiddenFileError, UnreadableFileError
from wholegrain.sources._open_blocks import Block, TruncatedError, open_blocks
from wholegrain.sources.cache import Cache, block_name
from wholegrain.sources.remote_options import RemoteOptions, options_for

T = TypeVar("T")

Run = tuple[int, int, "bytes | mmap.mmap"]
"""The first of some parts of an object, the one after the last, and memory that contains these."""

_MOST_PATHS = 1 << 16
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
        self._paths: dict[int, str] = {}  # of the blocks
        self._info = info(url)
        self.size = self._info.size
        self.tag = self._info.tag
        if self._cache is not None and not self._info.tag:
            logger().warning("%s is not cached: the store does not say when it changes.", url)
            self._cache = None

    def read_ranges(self, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """Return the bytes from each start up to its stop, which is within the object."""
        cache = self._cache
        if cache is None:
            return _remote.fetch(self.url, self._info, starts, stops)
        size = cache.block_bytes
        pairs = list(zip(starts, stops, strict=True))
        wanted = {start // size for start, _ in pairs}
        if any(start // size != (stop - 1) // size for start, stop in pairs):
            wanted = {
                number
                for start, stop in pairs
                if start < stop
                for number in range(start // size, (stop - 1) // size + 1)
            }
        blocks = self._blocks(cache, wanted)
        now = time.monotonic()
        try:
            return [_cut(blocks, size, start, stop, now) for start, stop in pairs]
        except TruncatedError:
            self._close(cache, blocks)
            return _remote.fetch(self.url, self._info, starts, stops)

    def runs(self, starts: Indices, stops: Indices) -> tuple[list[Run], Indices]:
        """Return memory that contains parts of the object, and where in it each part starts.

        What is in the cache is not copied.

        Args:
            starts: The first byte of each part, in rising order.
            stops: The byte after the last of each part, in rising order. No part is empty.
        """
        begins, ends = starts.tolist(), stops.tolist()
        cache = self._cache
        if cache is None:
            return _copies(_remote.fetch(self.url, self._info, begins, ends))
        size, paths, opened = cache.block_bytes, self._paths, open_blocks().blocks
        offsets = starts % size
        found: list[Run] = []
        late = []  # the runs of blocks that are not open, and of parts in several blocks
        wanted: set[int] = set()
        now = time.monotonic()
        at = 0
        try:
            while at < len(begins):
                number = begins[at] // size
                after = bisect.bisect_right(ends, (number + 1) * size, at)
                block = opened.get(paths.get(number, ""))
                if block is None or after == at:
                    late.append(len(found))
                    wanted.update(range(number, (ends[at] - 1) // size + 1))
                    after = max(after, at + 1)
                    found.append((at, after, b""))
                else:
                    block.was_used = True
                    found.append((at, after, block.memory(now)))
                at = after
            blocks = self._blocks(cache, wanted) if wanted else {}
            for run in late:
                at, after, _ = found[run]
                number = begins[at] // size
                if ends[at] <= (number + 1) * size:
                    found[run] = (at, after, blocks[number].memory(now))
                else:
                    found[run] = (at, after, _cut(blocks, size, begins[at], ends[at], now))
                    offsets[at] = 0
        except TruncatedError:
            for begin, end in zip(begins, ends, strict=True):
                self._close(cache, range(begin // size, (end - 1) // size + 1))
            return _copies(_remote.fetch(self.url, self._info, begins, ends))
        return found, offsets

    def _close(self, cache: Cache, numbers: Collection[int]) -> None:
        """Close blocks. Whoever opens a damaged one again finds the damage, and replaces it."""
        for number in numbers:
            open_blocks().close(self._path(cache, number))

    def _blocks(self, cache: Cache, numbers: Collection[int]) -> dict[int, Block]:
        """Return blocks from the cache, or from the store, which the cache then keeps."""
        opened = open_blocks()
        found: dict[int, Block] = {}
        closed = []
        for number in numbers:
            block = opened.blocks.get(self._path(cache, number))
            if block is None:
                closed.append(number)
            else:
                block.was_used = True
                found[number] = block
        if not closed:
            return found
        mine: list[int] = []
        others: dict[int, Future[Block | None]] = {}
        try:
            for number in sorted(closed):
                block = opened.open(cache, self._path(cache, number))
                if block is not None:
                    found[number] = block
                    continue
                waiting = opened.claim(self._path(cache, number), number, mine)
                if waiting is not None:
                    others[number] = waiting
            found |= self._fetch(cache, mine)
        finally:
            for number in mine:
                opened.fulfil(self._path(cache, number), found.get(number))
        missing = []
        for number, future in others.items():
            block = _result(future, options_for(self.url))
            if block is None:
                missing.append(number)
            else:
                found[number] = block
        return found | self._fetch(cache, missing)

    def _fetch(self, cache: Cache, numbers: list[int]) -> dict[int, Block]:
        """Read blocks from the store, and keep them in the cache."""
        if not numbers:
            return {}
        starts = [number * cache.block_bytes for number in numbers]
        stops = [min(start + cache.block_bytes, self.size) for start in starts]
        blocks = _remote.fetch(self.url, self._info, starts, stops)
        for number, data in zip(numbers, blocks, strict=True):
            cache.write_block(os.path.basename(self._path(cache, number)), data)
        return {number: Block(data) for number, data in zip(numbers, blocks, strict=True)}

    def _path(self, cache: Cache, number: int) -> str:
        """Return the file of a block."""
        path = self._paths.get(number)
        if path is None:
            if len(self._paths) >= _MOST_PATHS:
                self._paths.clear()
            tag = self._info.tag
            path = cache.path_of(block_name(self.url, self.size, tag, cache.block_bytes, number))
            self._paths[number] = path
        return path


def _result(future: Future[Block | None], options: RemoteOptions) -> Block | None:
    """Wait for a block that another thread fetches; None if it fails or takes too long."""
    try:
        return future.result(timeout=options.timeout_s)
    except TimeoutError:
        return None


def _copies(parts: list[bytes]) -> tuple[list[Run], Indices]:
    """Return a run for each part."""
    return [(at, at + 1, part) for at, part in enumerate(parts)], np.zeros(len(parts), np.int64)


def _cut(blocks: dict[int, Block], size: int, start: int, stop: int, now: float) -> bytes:
    """Return bytes `start` to `stop - 1` of an object, from its blocks."""
    number, offset = divmod(start, size)
    if stop - start <= size - offset:
        return blocks[number].memory(now)[offset : offset + stop - start] if start < stop else b""
    pieces = []
    while start < stop:
        number, offset = divmod(start, size)
        length = min(stop - start, size - offset)
        pieces.append(blocks[number].memory(now)[offset : offset + length])
        start += length
    return b"".join(pieces)


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
        return _listing.list_objects(url)
    folder = f"{url.rstrip('/')}/"
    known = cache.recall(folder)
    if known is not None and "keys" in known:
        found = _unless_away(url, _listing.list_objects)
        if found is None:
            return list(known["keys"])
    else:
        found = _listing.list_objects(url)
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
