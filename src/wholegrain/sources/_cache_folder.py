"""The folder for files that sources keep between runs, and locks between processes."""

import contextlib
import hashlib
import importlib
import os
import platform
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wholegrain._core.interruption import suppress_errors

try:
    fcntl: Any = importlib.import_module("fcntl")
except ImportError:  # Windows: two processes may do the same work, and both succeed.
    fcntl = None


def cache_folder() -> str | None:
    """Return the folder for cached files, or None if this user has none.

    It is `$WHOLEGRAIN_CACHE`, or `wholegrain` in `$XDG_CACHE_HOME`, which is `~/.cache` by default.
    """
    given = os.environ.get("WHOLEGRAIN_CACHE")
    if given:
        return os.path.abspath(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "wholegrain") if os.path.isabs(base) else None


def digest(*parts: object) -> str:
    """Return a name for what the parts identify."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _lock_folders() -> list[str]:
    uid = os.getuid() if hasattr(os, "getuid") else 0
    folders = [os.path.join(tempfile.gettempdir(), f"wholegrain-{uid}")]
    cache = cache_folder()
    return [cache, *folders] if cache else folders


@contextlib.contextmanager
def locked(name: str, when_waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process of this user and machine at a time do something.

    The kernel releases the lock if the process dies. If no folder for locks can be written, there
    is no lock.

    Args:
        name: What is done.
        when_waiting: Called if another process is doing it.
    """
    lock = _take(f"{digest(name)}.lock", when_waiting)
    try:
        yield
    finally:
        if lock is not None:
            fd, path = lock
            with suppress_errors(OSError):
                os.unlink(path)
            # Not only closed: a forked child may have a copy of the descriptor.
            with suppress_errors(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _take(name: str, when_waiting: Callable[[], None]) -> tuple[int, str] | None:
    if fcntl is None:
        return None
    for folder in _lock_folders():
        path = os.path.join(folder, "locks", name)
        with suppress_errors(OSError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return _take_file(path, when_waiting), path
    return None


def _take_file(path: str, when_waiting: Callable[[], None]) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                when_waiting()
                fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # Its holder has removed the file; another process may have a new one.


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def write_whole(path: str, parts: Iterable[bytes | memoryview], *, sync: bool = True) -> None:
    """Write a file that appears complete or not at all.

    Args:
        path: The file.
        parts: Its content.
        sync: Whether that holds also if the machine crashes. A file with a checksum needs no such
            guarantee, which takes tens of milliseconds.
    """
    fd, temporary = _open_temporary(path)
    try:
        with os.fdopen(fd, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        with suppress_errors(OSError):
            os.unlink(temporary)
        raise


def _open_temporary(path: str) -> tuple[int, str]:
    """Open an empty file next to `path` for writing.

    Its name is always the same for a user and a machine, so that what a killed process has left is
    replaced. If another process is using it, the name is random.
    """
    uid = os.getuid() if hasattr(os, "getuid") else 0
    temporary = f"{path}.{digest(platform.node(), uid)[:8]}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    if fcntl is not None:
        fd = os.open(temporary, flags, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have just renamed it.
            if _is_at(fd, temporary):
                os.ftruncate(fd, 0)
                return fd, temporary
        except OSError:
            pass
        os.close(fd)
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    return os.open(temporary, flags | os.O_EXCL, 0o666), temporary
