"""A cache of objects in stores, as blocks in files on local disk, shared by many processes.

    DIRECTORY/
      wholegrain-cache.json     marks the folder as a cache, so that no other is ever cleared
      lock                      locked by the process that writes or deletes blocks
      usage                     how many bytes all blocks take
      blocks/3f/3f9a...         one block: its bytes, then a checksum
      blocks/incoming           the block that is being written; renamed when it is complete
      objects/5c12...json       size and identity of each object, for when the store is down

The name of a block contains a digest of the object's address, size and etag. So a block can become
useless, but never wrong. Only the process that holds the lock writes or deletes files. The kernel
releases the lock when that process dies, so no lock is ever left over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

from wholegrain._core.byte_limit import byte_limit
from wholegrain._core.interruption import suppress_errors
from wholegrain._core.log import logger

MARKER = "wholegrain-cache.json"
"""The file that marks a folder as a cache."""
_VERSION = 1
_NAME = re.compile(r"[0-9a-f]{64}")
_FOOT = struct.Struct("<II")  # a checksum of name and content, and a number that marks blocks
_MAGIC = 0x57474243
# When the cache is full, this share of it is made free, so that not every write has to.
_FREED_AT_ONCE = 0.1
USE_S = 60.0
"""How often the time of the last use is written."""

_verified: set[tuple[int, int, int]] = set()
"""The blocks that this process has verified: part of the name, the inode and the size."""


@dataclasses.dataclass(frozen=True)
class Cache:
    """A folder on local disk that keeps what has been read from stores.

    Objects are kept in blocks. Many processes may use one cache at the same time, and the next run
    finds what this one has read. If the store cannot be reached, what is in the cache can still
    be read. When the cache is full, the blocks that were not used for the longest time are deleted.
    The cache never deletes a file that it did not write.

    Args:
        directory: The folder. It is created if it does not exist, and has to be empty or a cache.
        max_bytes: How large the cache may become: a number, a text such as `"100GB"`, or a
            fraction of the disk such as `0.75`.
        block_bytes: The size of a block, which is what one request fetches at least.

    Example:
        >>> cache = Cache("/nvme/cache", max_bytes="500GB")
        >>> set_remote_options(RemoteOptions(cache=cache))
    """

    directory: str
    max_bytes: int | str | float = "100GB"
    block_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        directory = os.path.abspath(os.fspath(self.directory))
        object.__setattr__(self, "directory", directory)
        if isinstance(self.block_bytes, bool) or not isinstance(self.block_bytes, int):
            raise TypeError(
                f"`block_bytes` has to be a whole number, but got {self.block_bytes!r}."
            )
        if not 4096 <= self.block_bytes <= 1 << 30:
            raise ValueError(
                f"`block_bytes` has to be between 4096 and {1 << 30}, but got {self.block_bytes}."
            )
        self._create()
        if self.limit() < self.block_bytes + _FOOT.size:
            raise ValueError(
                f"`max_bytes` is {self.limit():,}, which is less than one block of"
                f" {self.block_bytes:,} bytes."
            )

    def _create(self) -> None:
        marker = os.path.join(self.directory, MARKER)
        os.makedirs(self.directory, exist_ok=True)
        if not os.path.exists(marker):
            foreign = [x for x in os.listdir(self.directory) if not x.startswith(MARKER)]
            # Another process may have made the cache since, and it writes the marker first.
            if foreign and not os.path.exists(marker):
                raise ValueError(
                    f"{self.directory!r} is not empty and not a cache: it contains"
                    f" {min(foreign)!r}. Choose an empty folder."
                )
            _write(marker, json.dumps({"wholegrain_cache": _VERSION}).encode())
        try:
            with open(marker, "rb") as file:
                version = json.load(file)["wholegrain_cache"]
        except (ValueError, KeyError, TypeError):
            version = None
        if version != _VERSION:
            raise ValueError(
                f"{self.directory!r} was written by another version of wholegrain"
                f" (version {version} instead of {_VERSION}). Choose another folder."
            )
        for name in ("blocks", "objects"):
            os.makedirs(os.path.join(self.directory, name), exist_ok=True)

    def limit(self) -> int:
        """Return how many bytes the cache may take now."""
        return byte_limit(self.max_bytes, self.directory)

    # Blocks.

    def path_of(self, name: str) -> str:
        """Return the file of a block."""
        return os.path.join(self.directory, "blocks", name[:2], name)

    def open_block(self, name: str) -> int | None:
        """Return a descriptor of a block, or None if it is not there.

        Its checksum is verified the first time that this process opens it.
        """
        path = self.path_of(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            identity = (int(name[:16], 16), found.st_ino, found.st_size)
            if identity in _verified or _is_valid(fd, name):
                _verified.add(identity)
                if time.time() - found.st_mtime > USE_S:
                    os.utime(path)  # The time of the last use decides what is deleted first.
                return fd
        except OSError:
            pass
        os.close(fd)
        logger().warning("The cache has a damaged block, which is fetched again: %s", path)
        self.remove_block(name)
        return None

    def write_block(self, name: str, data: bytes) -> None:
        """Keep a block. If the disk is full or cannot be written, it is not kept."""
        foot = _FOOT.pack(_checksum(name, data), _MAGIC)
        path = self.path_of(name)
        try:
            with self._locked():
                if os.path.exists(path):
                    return  # Another process was quicker.
                usage = self._usage() + len(data) + len(foot)
                if usage > self.limit():
                    usage = self._make_room(len(data) + len(foot)) + len(data) + len(foot)
                # A process that is killed here leaves a number that is too large. That is on the
                # safe side, and the next time room is made it is counted again.
                self._set_usage(usage)
                incoming = os.path.join(self.directory, "blocks", "incoming")
                with open(incoming, "wb", buffering=0) as file:
                    for part in (data, foot):
                        _write_all(file.fileno(), part)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.replace(incoming, path)
        except OSError as error:
            logger().warning("A block could not be written to the cache: %s", error)

    def remove_block(self, name: str) -> None:
        """Delete a block, if it is there."""
        with suppress_errors(OSError), self._locked():
            size = os.stat(self.path_of(name)).st_size
            os.unlink(self.path_of(name))
            self._set_usage(max(0, self._usage() - size))

    def blocks(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the name of each block, and what the system knows of its file."""
        root = os.path.join(self.directory, "blocks")
        for folder in sorted(os.listdir(root)):
            if len(folder) != 2:
                continue
            with suppress_errors(OSError), os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name) and entry.name.startswith(folder):
                        with suppress_errors(OSError):
                            yield entry.name, entry.stat()

    def is_valid(self, name: str) -> bool:
        """Return whether a block has the content that was written."""
        try:
            fd = os.open(self.path_of(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _is_valid(fd, name)
        finally:
            os.close(fd)

    def _make_room(self, nbytes: int) -> int:
        """Delete the blocks that were not used for longest, and return what the others take."""
        found = sorted(self.blocks(), key=lambda block: block[1].st_mtime_ns)
        usage = sum(info.st_size for _, info in found)
        limit = self.limit()
        if usage + nbytes <= limit:
            return usage
        for name, info in found:
            if usage + nbytes <= limit * (1 - _FREED_AT_ONCE):
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path_of(name))
            usage -= info.st_size
        return usage

    def clear(self) -> None:
        """Delete all blocks and all that is known of objects, and nothing else."""
        with self._locked():
            for name, _ in list(self.blocks()):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path_of(name))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.directory, "blocks", "incoming"))
            for name in self._object_files():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
            self._set_usage(0)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only one who writes. The kernel releases the lock if this process dies."""
        import fcntl

        fd = os.open(os.path.join(self.directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            # A forked child has the descriptor too: closing only this one would keep the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _usage(self) -> int:
        try:
            with open(os.path.join(self.directory, "usage"), "rb", buffering=0) as file:
                return int(file.read(32))
        except (OSError, ValueError):
            return sum(info.st_size for _, info in self.blocks())

    def _set_usage(self, nbytes: int) -> None:
        path = os.path.join(self.directory, "usage")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            os.pwrite(fd, b"%-31d\n" % nbytes, 0)
        finally:
            os.close(fd)

    # What is known of objects and folders.

    def remember(self, url: str, known: dict[str, Any]) -> None:
        """Keep what a store told about an address."""
        data = json.dumps({"url": url, **known}).encode()
        if self.recall(url) != known:
            with suppress_errors(OSError):
                _write(self._object_path(url), data)

    def recall(self, url: str) -> dict[str, Any] | None:
        """Return what a store told about an address in this run or an earlier one."""
        try:
            with open(self._object_path(url), "rb") as file:
                known = json.load(file)
        except (OSError, ValueError):
            return None
        if not isinstance(known, dict) or known.pop("url", None) != url:
            return None
        return known

    def known_urls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all addresses that the cache knows something about."""
        for path in self._object_files():
            try:
                with open(path, "rb") as file:
                    known = json.load(file)
                yield known.pop("url"), known
            except (OSError, ValueError, KeyError, AttributeError):
                continue

    def _object_path(self, url: str) -> str:
        return os.path.join(self.directory, "objects", f"{_digest(url)}.json")

    def _object_files(self) -> list[str]:
        folder = os.path.join(self.directory, "objects")
        return [
            os.path.join(folder, name)
            for name in sorted(os.listdir(folder))
            if _NAME.fullmatch(name.partition(".json")[0])
        ]


def block_name(url: str, size: int, tag: str, block_bytes: int, number: int) -> str:
    """Return the name of a block of the object that has this size and tag."""
    return _digest(f"{url}\0{size}\0{tag}\0{block_bytes}\0{number}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(name: str, data: bytes | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(name.encode()))


def _is_valid(fd: int, name: str) -> bool:
    """Return whether a block has the content that was written."""
    size = os.fstat(fd).st_size - _FOOT.size
    if size < 0:
        return False
    data = os.pread(fd, size + _FOOT.size, 0)
    if len(data) != size + _FOOT.size:
        return False
    return _FOOT.unpack_from(data, size) == (_checksum(name, memoryview(data)[:size]), _MAGIC)


def _write(path: str, data: bytes) -> None:
    """Write a small file completely or not at all."""
    new = f"{path}.{os.getpid()}-{threading.get_ident()}.new"
    with open(new, "wb") as file:
        file.write(data)
    os.replace(new, path)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(fd, view) :]
