"""Exceptions of the sources.

Several are two things at once: what Grain raises in that place, so that programs which catch it
go on working, and what Python programmers expect there.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

from wholegrain._core.interruption import is_interruption
from wholegrain._read.limits import available_memory

# Less than this is not worth asking the system about.
_LARGE_BYTES = 1 << 26


class RecordIndexError(IndexError, ValueError):
    """There is no record at this index."""


class NotAnIndexError(TypeError, AttributeError):
    """This object cannot be used as an index."""


class BadRangeError(ValueError, AssertionError):
    """No range starts, stops and steps like this."""


class PathTypeError(TypeError, ValueError):
    """This object does not name a file."""


class DataFileError(Exception):
    """A file of a source cannot be read; the message names the file.

    All errors about files are of this class. They are also what Python programs expect: a
    `FileNotFoundError` or another `OSError` where the system refuses to open or read a file, and
    a `ValueError` where there is something else in it than there should be.
    """


class MissingFileError(DataFileError, FileNotFoundError, RuntimeError):
    """A file of a source does not exist."""


class UnreadableFileError(DataFileError, OSError):
    """The system does not open or read a file."""


class ForbiddenFileError(UnreadableFileError, PermissionError):
    """The system does not permit to read a file."""


class FolderError(UnreadableFileError, IsADirectoryError):
    """There is a folder where a file is needed."""


class CorruptFileError(DataFileError, ValueError, RuntimeError):
    """A file, or one of its records, cannot be read as the format it should have."""


class TooLargeFileError(DataFileError, ValueError, MemoryError):
    """A file says that it needs more memory than there is."""


_BY_ERRNO: dict[int, type[UnreadableFileError]] = {
    errno.EACCES: ForbiddenFileError,
    errno.EPERM: ForbiddenFileError,
    errno.EISDIR: FolderError,
}
# What the libraries raise an OSError for, though it is the content that they do not like.
_ABOUT_CONTENT = (None, errno.EINVAL, errno.ENODATA)
# What they tell in the text of other errors.
_IN_WORDS = (errno.ENOENT, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.EIO)


def missing_file(path: str, message: str = os.strerror(errno.ENOENT)) -> MissingFileError:
    """Return the error for a file that is not there, with its name in the usual place."""
    return MissingFileError(errno.ENOENT, message, path)


def unreadable(path: str, error: OSError) -> DataFileError:
    """Return the error for a file that the system does not open or read."""
    if error.errno == errno.ENOENT or isinstance(error, FileNotFoundError):
        return missing_file(path)
    number = error.errno or errno.EIO
    problem = error.strerror or str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        problem += " (`ulimit -n` sets how many this process may have)"
    return _BY_ERRNO.get(number, UnreadableFileError)(number, problem, path)


def explained(
    error: Exception,
    path: str,
    what: str,
    where: str = "",
    kind: type[CorruptFileError] = CorruptFileError,
) -> Exception:
    """Return what to raise instead of an error that reading a file has raised.

    Args:
        error: What was raised, by whichever library reads the file.
        path: The file.
        what: What it should be: "an Arrow file".
        where: Which part of it was read, as it follows the file's name: ", row group 3".
        kind: The class of the error if it is the content that cannot be read.
    """
    # A TypeError is about arguments, which come from the user, and an ImportError about a library.
    if isinstance(error, (DataFileError, TypeError, ImportError)) or is_interruption(error):
        return error
    if isinstance(error, OSError) and error.errno not in _ABOUT_CONTENT:
        return unreadable(path, error)
    for number in _IN_WORDS:
        if os.strerror(number) in str(error):
            return unreadable(path, OSError(number, os.strerror(number)))
    reason = f"({type(error).__name__}: {error})"
    if isinstance(error, MemoryError):
        return TooLargeFileError(
            f"{path!r}{where} cannot be read: there is not enough memory, or it is damaged and"
            f" says that it needs more than it does. {reason}"
        )
    return kind(
        f"{path!r}{where} cannot be read as {what}; it may be damaged, cut off or of another"
        f" format. {reason}"
    )


@contextlib.contextmanager
def explaining(
    path: str, what: str, where: str = "", kind: type[CorruptFileError] = CorruptFileError
) -> Iterator[None]:
    """Name a file in all that reading it raises, as `explained` says."""
    try:
        yield
    except Exception as error:
        told = explained(error, path, what, where, kind)
        if told is error:
            raise
        raise told from error


def check_memory(nbytes: int, path: str, what: str) -> None:
    """Raise if something in a file is larger than the memory there is."""
    if nbytes > _LARGE_BYTES and nbytes > (available := available_memory()):
        raise TooLargeFileError(
            f"{path!r}{what} needs {nbytes:,} bytes of memory, but {available:,} are available."
        )


def out_of_range(index: int, length: int, what: str) -> RecordIndexError:
    """Return the error for an index outside a source of `length` records."""
    if length == 0:
        return RecordIndexError(f"Record {index} was asked for, but {what} has no records.")
    return RecordIndexError(
        f"Record {index} was asked for, but {what} has records 0 to {length - 1}."
    )
