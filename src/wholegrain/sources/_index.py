"""Indexes of files: arrays that say where records are, built once and kept in side-car files.

A side-car is next to the data, `.<name>.<kind>.wgindex`, or in the cache folder if the folder of
the data is read-only. It starts with a header in JSON, which identifies the data; then follow the
arrays, aligned to 64 bytes. It is valid only for data with the same length, checksum of parts, and
modification time, or tag in a store; otherwise it is replaced.
"""

import contextlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from wholegrain._core.interruption import suppress_errors
from wholegrain._core.log import logger
from wholegrain._core.types import NDArray
from wholegrain.sources import _cached, _remote
from wholegrain.sources._cache_folder import cache_folder, digest, locked, write_whole
from wholegrain.sources._errors import CorruptFileError, DataFileError
from wholegrain.sources._files import LocalFile, RemoteFile, open_file, read_all
from wholegrain.sources._identity import Identity
from wholegrain.sources._progress import Progress

SUFFIX = ".wgindex"
_HEAD = struct.Struct("<8sIIQ")  # magic, length and checksum of the header, length of the file
_MAGIC = b"WGINDEX2"
_ALIGNMENT = 64
_LONGEST_HEADER = 1 << 26
# A smaller side-car is read: mapping it would need a file descriptor.
_MAPPED_BYTES = 1 << 20

Arrays = Mapping[str, NDArray[Any]]


class Index:
    """The arrays of an index.

    Attributes:
        identity: Which file it is of.
        facts: What else is known about the file, as in JSON.
        arrays: The arrays.
        place: Its side-car; None if it could not be saved.
    """

    def __init__(
        self, identity: Identity, facts: dict[str, Any], arrays: Arrays, place: str | None = None
    ) -> None:
        self.identity = identity
        self.facts = facts
        self.arrays = arrays
        self.place = place
        self.is_mapped = False  # Then it has a file descriptor.


Build = Callable[[LocalFile | RemoteFile, Progress], tuple[dict[str, Any], Arrays]]


def obtain(path: str, kind: str, settings: dict[str, Any], build: Build) -> Index:
    """Return the index of a file from its side-car, or build it and save it.

    Args:
        path: The file.
        kind: Which index of the file it is; a part of the name of the side-car.
        settings: What the index depends on besides the file.
        build: Returns facts and arrays of the file.
    """
    with contextlib.closing(open_file(path)) as file:
        identity = Identity.of(file)
        places = _places(path, kind)
        found = _find(places, kind, settings, identity)
        if found is not None:
            return found

        def waiting() -> None:
            logger().info("Waiting for another process, which is indexing %r.", path)

        with locked(f"{kind} {places[-1]}", waiting):
            found = _find(places, kind, settings, identity)
            if found is None and isinstance(file, RemoteFile):
                found = _find_in_store(path, kind, settings, identity)
            if found is None:
                found = _build(file, identity, build)
            if found.place is None:
                _save(found, places, kind, settings, path)
            return found


def _build(file: LocalFile | RemoteFile, identity: Identity, build: Build) -> Index:
    facts, arrays = build(file, Progress(file.path, file.size))
    with contextlib.closing(open_file(file.path)) as now:
        if Identity.of(now) != identity:
            raise CorruptFileError(
                f"{file.path!r} changed while it was indexed. Wait until it is completely written."
            )
    return Index(identity, facts, arrays)


def _places(path: str, kind: str) -> list[str]:
    """Return where the side-car may be, best first."""
    places = []
    name = path
    if not _remote.is_remote(path):
        name = os.path.abspath(path)
        folder, base = os.path.split(name)
        places.append(os.path.join(folder, f".{base}.{kind}{SUFFIX}"))
    cache = cache_folder()
    if cache is not None:
        places.append(os.path.join(cache, "index", f"{digest(name)}.{kind}{SUFFIX}"))
    return places or [name]


def _find(
    places: list[str], kind: str, settings: dict[str, Any], identity: Identity
) -> Index | None:
    for place in places:
        with suppress_errors(OSError, DataFileError):
            with contextlib.closing(LocalFile(place)) as file:
                found = _load(_content_of(file), kind, settings, identity)
            if isinstance(found, Index):
                found.place = place
                return found
            logger().info("The index %r is not used: %s.", place, found)
    return None


def _find_in_store(
    path: str, kind: str, settings: dict[str, Any], identity: Identity
) -> Index | None:
    """Return the index from a side-car next to an object in a store."""
    folder, _, base = path.rpartition("/")
    address = f"{folder}/.{base}.{kind}{SUFFIX}"
    with suppress_errors(OSError, DataFileError):
        if _cached.is_within_reach(address):
            found = _load(read_all(address), kind, settings, identity)
            return found if isinstance(found, Index) else None
    return None


def _content_of(file: LocalFile) -> bytes | mmap.mmap:
    if file.size < _MAPPED_BYTES:
        return file.read(0, file.size)
    return mmap.mmap(file.fileno(), file.size, access=mmap.ACCESS_READ)


def _load(
    content: bytes | mmap.mmap, kind: str, settings: dict[str, Any], identity: Identity
) -> Index | str:
    """Return an index from the content of a side-car, or why it is not valid."""
    if len(content) < _HEAD.size:
        return "it is truncated"
    magic, length, checksum, size = _HEAD.unpack(content[: _HEAD.size])
    if magic != _MAGIC:
        return "it has another format"
    text = content[_HEAD.size : _HEAD.size + length]
    if size != len(content) or length > _LONGEST_HEADER or zlib.crc32(text) != checksum:
        return "it is truncated or damaged"
    header = json.loads(text)
    if header["kind"] != kind or header["settings"] != settings:
        return "it was built with other settings"
    if not identity.is_of(header["identity"]):
        return "the file has changed"
    body = _aligned(_HEAD.size + length)
    if zlib.crc32(memoryview(content)[body:]) != header["checksum"]:
        return "it is damaged"
    arrays = {
        name: np.frombuffer(content, dtype, count, body + offset)
        for name, dtype, count, offset in header["arrays"]
    }
    index = Index(identity, header["facts"], arrays)
    index.is_mapped = isinstance(content, mmap.mmap)
    return index


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _save(index: Index, places: list[str], kind: str, settings: dict[str, Any], path: str) -> None:
    if _remote.is_remote(path) and not index.identity.tag:
        logger().warning(
            "The index of %r is not saved, because the store does not say when the object changes,"
            " so each run builds it in memory.",
            path,
        )
        return
    reasons = []
    for place in places:
        try:
            folder = os.path.dirname(place)
            if place is not places[0] or _remote.is_remote(path):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            write_whole(place, _parts(index, kind, settings), sync=False)
        except OSError as error:
            reasons.append(f"{folder!r}: {error.strerror}")
        else:
            index.place = place
            return
    logger().warning(
        "The index of %r cannot be saved, so each process builds it in memory (%s). Set"
        " WHOLEGRAIN_CACHE to a folder that can be written.",
        path,
        "; ".join(reasons),
    )


def _parts(index: Index, kind: str, settings: dict[str, Any]) -> Iterator[bytes | memoryview]:
    """Yield the content of a side-car."""
    listed: list[list[Any]] = []
    bodies: list[bytes | memoryview] = []
    offset = checksum = 0
    for name, array in index.arrays.items():
        data = np.ascontiguousarray(array)
        listed.append([name, data.dtype.str, data.size, offset])
        padding = bytes(_aligned(data.nbytes) - data.nbytes)
        for part in (data.data.cast("B") if data.size else b"", padding):
            checksum = zlib.crc32(part, checksum)
            bodies.append(part)
        offset += _aligned(data.nbytes)
    header = {
        "kind": kind,
        "settings": settings,
        "identity": list(index.identity),
        "facts": index.facts,
        "arrays": listed,
        "checksum": checksum,
    }
    text = json.dumps(header).encode()
    body = _aligned(_HEAD.size + len(text))
    yield _HEAD.pack(_MAGIC, len(text), zlib.crc32(text), body + offset)
    yield text + bytes(body - _HEAD.size - len(text))
    yield from bodies
