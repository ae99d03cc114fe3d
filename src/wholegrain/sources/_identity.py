"""What tells a file from another one, and from an earlier one at the same path."""

import hashlib
from typing import Any, NamedTuple

from wholegrain.sources._errors import CorruptFileError
from wholegrain.sources._files import LocalFile, RemoteFile

# Of a longer file, these parts are compared: its begin, its end, and some in between.
_END_BYTES = 1 << 16
_PART_BYTES = 1 << 13
_PARTS = 16
_ALL_BYTES = 2 * _END_BYTES + _PARTS * _PART_BYTES


class Identity(NamedTuple):
    """What identifies the content of a file.

    Attributes:
        size: Its length.
        mtime_ns: The modification time of a local file; 0 for an object in a store.
        checksum: Of parts of the content.
        tag: What changes whenever an object in a store does; empty for a local file, and if the
            store does not tell it.
    """

    size: int
    mtime_ns: int
    checksum: str
    tag: str = ""

    @classmethod
    def of(cls, file: LocalFile | RemoteFile) -> "Identity":
        """Return the identity of an open file."""
        if isinstance(file, LocalFile):
            found = file.stat()
            size, mtime_ns, tag = found.st_size, found.st_mtime_ns, ""
        else:
            size, mtime_ns, tag = file.size, 0, file.tag
        starts, lengths = _parts(size)
        hasher = hashlib.blake2b(digest_size=16)
        for part in file.read_ranges(starts, lengths):
            hasher.update(part)
        return cls(size, mtime_ns, hasher.hexdigest(), tag)

    def is_of(self, other: "Identity | list[Any]") -> bool:
        """Return whether it is the same file, which may have been uploaded to a store since."""
        size, mtime_ns, checksum, tag = Identity(*other)
        return (
            (self.size, self.checksum) == (size, checksum)
            and (not self.mtime_ns or not mtime_ns or self.mtime_ns == mtime_ns)
            and (not self.tag or not tag or self.tag == tag)
        )


def _parts(size: int) -> tuple[list[int], list[int]]:
    if size <= _ALL_BYTES:
        return [0], [size]
    first, last = _END_BYTES, size - _END_BYTES
    step = (last - first - _PART_BYTES) / (_PARTS - 1)
    between = [first + int(number * step) for number in range(_PARTS)]
    return [0, *between, last], [_END_BYTES, *[_PART_BYTES] * _PARTS, _END_BYTES]


def changed(path: str) -> CorruptFileError:
    """Return the error for a file that is not the one that a source was created from."""
    return CorruptFileError(
        f"{path!r} has changed since the source was created. Create the source again."
    )
