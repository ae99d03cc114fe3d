"""Local files in memory, with a look at whether they still are as long as they were."""

import mmap

from wholegrain.sources._errors import CorruptFileError, unreadable
from wholegrain.sources._files import LocalFile


class MappedFile:
    """A local file that is mapped into memory: no call to the system for a record.

    The system ends a process that touches memory past the end of a file that has become shorter.
    So `check` has to be called before the memory is read. Whoever cuts off a file in the moment
    between the two still ends the process; only copying all that is read would prevent it.
    """

    def __init__(self, file: LocalFile) -> None:
        self.path = file.path
        self.size = file.size
        self.memory: mmap.mmap | bytes = b""  # An empty file cannot be mapped.
        if file.size:
            try:
                # It has a descriptor of its own.
                self.memory = mmap.mmap(file.fileno(), file.size, access=mmap.ACCESS_READ)
            except OSError as error:
                raise unreadable(file.path, error) from error

    def check(self) -> None:
        """Raise if the file has become shorter."""
        size = self.memory.size() if isinstance(self.memory, mmap.mmap) else 0
        if size < self.size:
            raise shrunk(self.path, self.size, size)


def shrunk(path: str, before: int, now: int) -> CorruptFileError:
    """Return the error for a file that has become shorter while it was in use."""
    return CorruptFileError(
        f"{path!r} has become shorter since it was opened: {now} bytes where there were {before}."
        " Make the source again."
    )
