"""The folder of a cache of elements: its marker, its lock, its limit, and what is in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from typing import Any

MARKER = "wholegrain-elements.json"
"""The file that marks a folder as a cache of elements."""

_VERSION = 1
_NAME = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(r"pipeline\.json|index|index\.new|data-\d{5,}")


def check(path: str) -> None:
    """Raise if a folder exists that is neither empty nor a cache of elements."""
    if not os.path.exists(path):
        return
    marker = os.path.join(path, MARKER)
    if not os.path.exists(marker):
        foreign = [name for name in os.listdir(path) if not name.startswith(MARKER)]
        # Another process may have made the cache since, and it writes the marker first.
        if foreign and not os.path.exists(marker):
            raise ValueError(
                f"{path!r} is not empty and not a cache of elements: it contains"
                f" {min(foreign)!r}. Choose an empty folder."
            )
        return
    try:
        with open(marker, "rb") as file:
            version = json.load(file)["wholegrain_elements"]
    except (ValueError, KeyError, TypeError):
        version = None
    if version != _VERSION:
        raise ValueError(
            f"{path!r} was written by another version of wholegrain (version {version} instead of"
            f" {_VERSION}). Choose another folder."
        )


def create(path: str) -> None:
    """Make a folder a cache of elements."""
    check(path)
    marker = os.path.join(path, MARKER)
    if not os.path.exists(marker):
        os.makedirs(path, exist_ok=True)
        new = f"{marker}.{os.getpid()}"
        with open(new, "w") as file:
            json.dump({"wholegrain_elements": _VERSION}, file)
        os.replace(new, marker)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Be the only process that creates or deletes something in the folder.

    The kernel releases the lock if this process dies.
    """
    fd = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # A forked child has the descriptor too: closing only this one would keep the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def names(path: str) -> list[str]:
    """Return the names of the pipelines that have elements in the cache."""
    return sorted(name for name in os.listdir(path) if _NAME.fullmatch(name))


def described(path: str, name: str) -> dict[str, Any]:
    """Return what is known about a pipeline in the cache."""
    try:
        with open(os.path.join(path, name, "pipeline.json"), "rb") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def nbytes_of(path: str, name: str) -> int:
    """Return how many bytes the elements of a pipeline take, with their index."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(os.path.join(path, name)) as entries:
        for entry in entries:
            if _FILE.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    total += entry.stat().st_size
    return total


def usage(path: str) -> int:
    """Return how many bytes the cache takes."""
    return sum(nbytes_of(path, name) for name in names(path))


def make_room(path: str, nbytes: int, limit: int, keep: str) -> bool:
    """Delete pipelines that nobody uses until there is room; return whether there is.

    The one that was not used for longest is deleted first. The caller holds the lock.

    Args:
        path: The cache.
        nbytes: How much room is needed.
        limit: How large the cache may become.
        keep: The pipeline of the caller.
    """
    free = limit - usage(path) - nbytes
    if free >= 0:
        return True
    others = [name for name in names(path) if name != keep]
    for name in sorted(others, key=lambda name: last_use(path, name)):
        size = nbytes_of(path, name)
        if remove(path, name):
            free += size
            if free >= 0:
                return True
    return False


def last_use(path: str, name: str) -> float:
    """Return when a pipeline was last opened, in seconds since 1970."""
    try:
        return os.stat(os.path.join(path, name, "pipeline.json")).st_mtime
    except OSError:
        return 0.0


def remove(path: str, name: str, *, by_force: bool = False) -> bool:
    """Delete the elements of a pipeline, unless somebody uses them; return whether it did.

    Only files that the cache wrote are deleted. The caller holds the lock.
    """
    folder = os.path.join(path, name)
    if not by_force and _is_used(os.path.join(folder, "index")):
        return False
    # The index goes first: without it, nobody reads the other files.
    for file in sorted(os.listdir(folder), key=lambda file: file != "index"):
        if _FILE.fullmatch(file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, file))
    with contextlib.suppress(OSError):  # It contains something else.
        os.rmdir(folder)
    return True


def _is_used(index: str) -> bool:
    try:
        fd = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
