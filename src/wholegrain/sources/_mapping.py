"""Memory-mapped local files, with a check that they were not truncated."""

import mmap

from wholegrain.sources._errors import CorruptFileError, unreadable
from wholegrain.sources._files import LocalFile


class MappedFile:
    """A memory-mapped local file: reading a record needs no system call.

    Accessing memory past the end of a truncated file kills the process with SIGBUS. So call `check`
    before reading the memory. There is still a race if the file is truncated between the check and
    the read; only reading the file with system calls would avoid it.
    """

    def __init__(self, file: LocalFile) -> None:
        self.path = file.path
        self.size = file.size
        self.memory: mmap.mmap | bytes = b""  # An empty file cannot be mapped.
        if file.size:
            try:
                # The mapping duplicates the file descriptor.
                self.memory = mmap.mmap(file.fileno(), file.size, access=mmap.ACCESS_READ)
            except OSError as error:
                raise unreadable(file.path, error) from error

    def check(self) -> None:
        """Raise if the file was truncated."""
        size = self.memory.size() if isinstance(self.memory, mmap.mmap) else 0
        if size < self.size:
            raise shrunk(self.path, self.size, size)


def shrunk(path: str, before: int, now: int) -> CorruptFileError:
    """Return the error for a file that was truncated while it was in use."""
    return CorruptFileError(
        f"{path!r} was truncated after it was opened, from {before} to {now} bytes."
        " Create the source again."
    )
