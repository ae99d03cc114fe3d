"""Shared memory: anonymous if the system supports it, named elsewhere.

Linux has anonymous files in memory (`memfd`), whose descriptors can be sent over a socket. They
have no name, need no cleanup after a crash, and are not limited by the size of /dev/shm. On other
POSIX systems, a shared-memory object is unlinked as soon as it is open, with the same effect.
Windows has only named memory, which disappears with the last process that uses it.
"""

import contextlib
import importlib
import mmap
import os
import sys
from collections.abc import Sequence
from io import FileIO
from typing import Any, Literal

from wholegrain._core.interruption import suppress_errors

Kind = Literal["memfd", "unlinked", "named"]

Handle = int | str
"""How another process opens the memory: by file descriptor or by name."""

# Since Linux 5.14. Populates the page table in one call instead of one page fault per page.
_MADV_POPULATE_WRITE = 23


def choose_kind() -> Kind:
    """Return the kind that WHOLEGRAIN_SHARED_MEMORY names, or else the best one here."""
    asked = os.environ.get("WHOLEGRAIN_SHARED_MEMORY", "auto")
    kinds: tuple[Kind, ...] = ("memfd", "unlinked", "named")
    for kind in kinds:
        if asked == kind:
            return kind
    if asked != "auto":
        raise ValueError(
            f"The environment variable WHOLEGRAIN_SHARED_MEMORY is {asked!r}. It can be auto,"
            " memfd, unlinked or named."
        )
    if hasattr(os, "memfd_create"):
        return "memfd"
    return "named" if sys.platform == "win32" else "unlinked"


def new_name() -> str:
    """Return a unique name, which also is no prefix of another name."""
    return f"/wholegrain-{os.urandom(6).hex()}"


def create(kind: Kind, nbytes: int, name: str | None = None) -> tuple[mmap.mmap, Handle]:
    """Create shared memory; return it and the handle for `attach`.

    The caller has to close a descriptor, and to remove a name with `forget`.
    """
    name = name or new_name()
    if kind == "named" and sys.platform == "win32":
        return mmap.mmap(-1, nbytes, tagname=name), name
    if kind == "memfd":
        descriptor = os.memfd_create("wholegrain", os.MFD_CLOEXEC)
        handle: Handle = descriptor
    else:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
        descriptor = _posix().shm_open(name, flags, mode=0o600)
        handle = name
        if kind == "unlinked":
            forget(name)
            handle = descriptor
    try:
        os.ftruncate(descriptor, nbytes)
        memory = _map(descriptor, nbytes, mmap.ACCESS_WRITE)
    except BaseException:
        os.close(descriptor)
        raise
    if handle is not descriptor:
        os.close(descriptor)
    return memory, handle


class OwnedFile(FileIO):
    """A file that is closed without a ResourceWarning when it is garbage collected.

    A plain descriptor would leak if an exception from a signal handler came before the `try` that
    closes it.
    """

    def __del__(self) -> None:
        self.close()


def anonymous_file(name: str) -> FileIO:
    """Create a file that exists in memory only."""
    return OwnedFile(os.memfd_create(name, os.MFD_CLOEXEC), "r+")


class Filled:
    """Shared memory with initial content, until this object is closed or deleted.

    Args:
        kind: The kind of memory.
        pieces: The content: offsets and buffers.
        nbytes: The size.
    """

    def __init__(self, kind: Kind, pieces: Sequence[tuple[int, Any]], nbytes: int) -> None:
        self._file: FileIO | None = None
        self.handle: Handle = -1
        """The descriptor or the name. Callers pass it on and do not close it."""
        self._owner = os.getpid()
        if kind != "memfd":
            shared, self.handle = create(kind, nbytes)
            if isinstance(self.handle, int):
                self._file = OwnedFile(self.handle, "r+")
            for start, piece in pieces:
                data = memoryview(piece).cast("B")
                shared[start : start + len(data)] = data
            return
        self._file = anonymous_file("wholegrain")
        self.handle = self._file.fileno()
        os.ftruncate(self.handle, nbytes)
        for start, piece in pieces:
            rest = memoryview(piece).cast("B")
            while rest:  # Writing to the file is faster than one page fault per page.
                written = os.pwrite(self.handle, rest, start)
                start, rest = start + written, rest[written:]

    def close(self) -> None:
        """Close the descriptor or remove the name. Existing mappings stay valid."""
        if self._file is not None:
            self._file.close()
        elif isinstance(self.handle, str) and self._owner == os.getpid():
            forget(self.handle)

    def __del__(self) -> None:
        self.close()


def attach(handle: Handle, nbytes: int, *, private: bool = False) -> mmap.mmap:
    """Map memory that another process created. If the handle is a descriptor, close it.

    Args:
        handle: The handle from `create`, or the descriptor as received over a socket.
        nbytes: The size that it was created with.
        private: Map it copy-on-write, so that writes are visible only in this process.
    """
    access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE
    if isinstance(handle, str):
        if sys.platform == "win32":
            return mmap.mmap(-1, nbytes, tagname=handle, access=access)
        handle = _open_name(handle)
    try:
        return _map(handle, nbytes, access)
    finally:
        os.close(handle)


def _map(descriptor: int, nbytes: int, access: int) -> mmap.mmap:
    # With trackfd=False, mmap does not duplicate the descriptor; a process may have few of them.
    untracked: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    return mmap.mmap(descriptor, nbytes, access=access, **untracked)


def populate(memory: mmap.mmap, start: int, nbytes: int) -> None:
    """Populate pages before they are written, if the system supports it."""
    if sys.platform == "linux":
        with suppress_errors(OSError, ValueError):  # Otherwise each page faults.
            memory.madvise(_MADV_POPULATE_WRITE, start, nbytes)


def forget(handle: Handle) -> None:
    """Remove a name. Existing mappings stay valid."""
    if isinstance(handle, str) and sys.platform != "win32":
        with contextlib.suppress(FileNotFoundError):
            _posix().shm_unlink(handle)


def _open_name(name: str) -> int:
    descriptor: int = _posix().shm_open(name, os.O_RDWR, mode=0o600)
    return descriptor


def _posix() -> Any:
    # multiprocessing.shared_memory uses this module too. Its class would start a resource tracker,
    # which unlinks memory that the other process still reads, and warns about it.
    return importlib.import_module("_posixshmem")
