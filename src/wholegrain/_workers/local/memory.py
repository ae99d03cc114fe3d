"""Memory that two processes see: anonymous where the system has it, named elsewhere.

Linux has files that exist in memory only (`memfd`) and can be handed over a socket: nothing to
name, nothing to clean up after a crash, no limit by the size of /dev/shm. Other POSIX systems get
the same from a shared-memory object whose name is removed as soon as it is open. Windows has only
names, which go away with the last process that uses them.
"""

import contextlib
import importlib
import mmap
import os
import sys
from collections.abc import Sequence
from io import FileIO
from typing import Any, Literal

Kind = Literal["memfd", "unlinked", "named"]

Handle = int | str
"""What another process opens the memory by: a file descriptor or a name."""

# Since Linux 5.14; fills the page table in one call instead of a fault for each page.
_MADV_POPULATE_WRITE = 23


def choose_kind() -> Kind:
    """Return the best kind of shared memory here, or what WHOLEGRAIN_SHARED_MEMORY asks for."""
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
    """Return a name that nothing has yet, nor anything that starts with it."""
    return f"/wholegrain-{os.urandom(6).hex()}"


def create(kind: Kind, nbytes: int, name: str | None = None) -> tuple[mmap.mmap, Handle]:
    """Make shared memory; return it and the handle that `attach` takes.

    A descriptor belongs to the caller. A name is removed with `forget`.
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
    """A file that is closed, without complaint, when nobody has it any more.

    A mere descriptor would stay open if an exception out of a signal handler came before somebody
    is there to close it.
    """

    def __del__(self) -> None:
        self.close()


def anonymous_file(name: str) -> FileIO:
    """Make a file that exists in memory only."""
    return OwnedFile(os.memfd_create(name, os.MFD_CLOEXEC), "r+")


class Filled:
    """Shared memory with content, until this is closed or let go of.

    Args:
        kind: What kind of memory.
        pieces: What to write into it, each with the byte where it starts.
        nbytes: How large it is.
    """

    def __init__(self, kind: Kind, pieces: Sequence[tuple[int, Any]], nbytes: int) -> None:
        self._file: FileIO | None = None
        self.handle: Handle = -1
        """The descriptor, or the name; to be passed on, not to be closed."""
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
            while rest:  # A write of fresh memory is quicker than a fault for each page.
                written = os.pwrite(self.handle, rest, start)
                start, rest = start + written, rest[written:]

    def close(self) -> None:
        """Close the descriptor, or remove the name; who has the memory open keeps it."""
        if self._file is not None:
            self._file.close()
        elif isinstance(self.handle, str) and self._owner == os.getpid():
            forget(self.handle)

    def __del__(self) -> None:
        self.close()


def attach(handle: Handle, nbytes: int, *, private: bool = False) -> mmap.mmap:
    """Map memory that another process made. Takes over, and closes, a descriptor.

    Args:
        handle: What `create` returned, or the descriptor as it arrived over a socket.
        nbytes: The size it was made with.
        private: What this process writes, only it sees.
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
    # The mapping lasts without the descriptor, of which a process has only so many.
    untracked: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    return mmap.mmap(descriptor, nbytes, access=access, **untracked)


def populate(memory: mmap.mmap, start: int, nbytes: int) -> None:
    """Have the pages ready before they are written, where the system can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # Else they come one by one.
            memory.madvise(_MADV_POPULATE_WRITE, start, nbytes)


def forget(handle: Handle) -> None:
    """Remove a name. Those who have the memory open keep it."""
    if isinstance(handle, str) and sys.platform != "win32":
        with contextlib.suppress(FileNotFoundError):
            _posix().shm_unlink(handle)


def _open_name(name: str) -> int:
    descriptor: int = _posix().shm_open(name, os.O_RDWR, mode=0o600)
    return descriptor


def _posix() -> Any:
    # What multiprocessing.shared_memory is made of. Its own class starts a process that would
    # remove, and complain about, memory that the other side still reads.
    return importlib.import_module("_posixshmem")
