"""Exceptions of the sources.

Several have two types: the one that Grain raises, so that programs that catch it keep working,
and the one that Python programmers expect.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

from wholegrain._core.interruption import is_interruption
from wholegrain._read.machine import available_memory

# For smaller sizes, checking the available memory is not worth its cost.
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

    All errors about files have this class. They also have the type that Python programs expect: a
    `FileNotFoundError` or another `OSError` if the system cannot open or read a file, and
    a `ValueError` if its content is not valid.
    """


class MissingFileError(DataFileError, FileNotFoundError, RuntimeError):
    """A file of a source does not exist."""


class UnreadableFileError(DataFileError, OSError):
    """The system cannot open or read a file."""


class ForbiddenFileError(UnreadableFileError, PermissionError):
    """The permissions of a file do not allow reading it."""


class FolderError(UnreadableFileError, IsADirectoryError):
    """A path is a folder, but a file is needed."""


class CorruptFileError(DataFileError, ValueError, RuntimeError):
    """A file, or one of its records, is not valid in the expected format."""


class TooLargeFileError(DataFileError, ValueError, MemoryError):
    """A file claims to need more memory than is available."""


_BY_ERRNO: dict[int, type[UnreadableFileError]] = {
    errno.EACCES: ForbiddenFileError,
    errno.EPERM: ForbiddenFileError,
    errno.EISDIR: FolderError,
}
# Cases in which libraries raise an OSError because of invalid content.
_ABOUT_CONTENT = (None, errno.EINVAL, errno.ENODATA)
# Texts of other errors that mean the same.
_IN_WORDS = (errno.ENOENT, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.EIO)


def missing_file(path: str, message: str = os.strerror(errno.ENOENT)) -> MissingFileError:
    """Return the error for a missing file, with its name in `filename`."""
    return MissingFileError(errno.ENOENT, message, path)


def unreadable(path: str, error: OSError) -> DataFileError:
    """Return the error for a file that the system cannot open or read.

    An exception of a signal handler, such as a `TimeoutError`, says nothing about the file and is
    raised as it is.
    """
    if is_interruption(error):
        raise error
    if error.errno == errno.ENOENT or isinstance(error, FileNotFoundError):
        return missing_file(path)
    number = error.errno or errno.EIO
    problem = error.strerror or str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        problem += " (`ulimit -n` sets the limit of this process)"
    return _BY_ERRNO.get(number, UnreadableFileError)(number, problem, path)


def explained(
    error: Exception,
    path: str,
    what: str,
    where: str = "",
    kind: type[CorruptFileError] = CorruptFileError,
) -> Exception:
    """Return the error to raise instead of one that a library raised while reading a file.

    Args:
        error: The error of the library.
        path: The file.
        what: The expected format: "an Arrow file".
        where: The part that was read, as a suffix of the file name: ", row group 3".
        kind: The class of the error if the content is not valid.
    """
    # TypeErrors are about the user's arguments, and ImportErrors about libraries.
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
            f"{path!r}{where} cannot be read: memory is insufficient, or the file is damaged and"
            f" claims to need more than it does. {reason}"
        )
    return kind(
        f"{path!r}{where} cannot be read as {what}; it may be damaged, truncated or of another"
        f" format. {reason}"
    )


@contextlib.contextmanager
def explaining(
    path: str, what: str, where: str = "", kind: type[CorruptFileError] = CorruptFileError
) -> Iterator[None]:
    """Replace errors from reading a file by those of `explained`, which name the file."""
    try:
        yield
    except Exception as error:
        told = explained(error, path, what, where, kind)
        if told is error:
            raise
        raise told from error


def check_memory(nbytes: int, path: str, what: str) -> None:
    """Raise if a part of a file is larger than the available memory."""
    if nbytes > _LARGE_BYTES and nbytes > (available := available_memory()):
        raise TooLargeFileError(
            f"{path!r}{what} needs {nbytes:,} bytes of memory, but {available:,} are available."
        )


def out_of_range(index: int, length: int, what: str) -> RecordIndexError:
    """Return the error for an index outside a source of `length` records."""
    if length == 0:
        return RecordIndexError(f"Record {index} was requested, but {what} has no records.")
    return RecordIndexError(
        f"Record {index} was requested, but {what} has records 0 to {length - 1}."
    )
