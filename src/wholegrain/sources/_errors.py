"""Exceptions of the sources.

Several are two things at once: what Grain raises in that place, so that programs which catch it
go on working, and what Python programmers expect there.
"""

import errno
import os


class RecordIndexError(IndexError, ValueError):
    """There is no record at this index."""


class NotAnIndexError(TypeError, AttributeError):
    """This object cannot be used as an index."""


class BadRangeError(ValueError, AssertionError):
    """No range starts, stops and steps like this."""


class PathTypeError(TypeError, ValueError):
    """This object does not name a file."""


class MissingFileError(FileNotFoundError, RuntimeError):
    """A file of a source does not exist."""


class CorruptFileError(ValueError, RuntimeError):
    """A file, or one of its records, cannot be read as the format it should have."""


def missing_file(path: str, message: str = os.strerror(errno.ENOENT)) -> MissingFileError:
    """Return the error for a file that is not there, with its name in the usual place."""
    return MissingFileError(errno.ENOENT, message, path)


def out_of_range(index: int, length: int, what: str) -> RecordIndexError:
    """Return the error for an index outside a source of `length` records."""
    if length == 0:
        return RecordIndexError(f"Record {index} was asked for, but {what} has no records.")
    return RecordIndexError(
        f"Record {index} was asked for, but {what} has records 0 to {length - 1}."
    )
