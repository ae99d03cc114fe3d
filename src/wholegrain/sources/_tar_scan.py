"""The members of tar files: ustar, GNU long names and pax headers."""

import re
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from wholegrain.sources._errors import CorruptFileError

BLOCK = 512
_END = bytes(BLOCK)
_NOTHING: dict[str, str] = {}
_ADLER_PRIME = 65521
_AFTER_DIGITS = b"\0 "
_LONG_NAME, _LONG_LINK, _PAX, _GLOBAL_PAX = b"L", b"K", b"x", b"g"
_FOLDER = b"5"
_LINKS = {b"1": "a hard link", b"2": "a symbolic link"}
_SPECIAL = {b"3": "a device", b"4": "a device", b"6": "a pipe"}
_SPARSE = b"S"
_LONGEST_HEADER = 1 << 24
_PAX_RECORD = re.compile(rb"(\d{1,20}) ([^=]+)=")

# WebDataset's split of a name: the key ends at the first dot of the file name.
_KEY = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__($|/)")

Read = Callable[[int, int], bytes]


class Member(NamedTuple):
    """A file in a tar file: its name, and where its content is."""

    name: str
    start: int
    size: int
    header: int  # the offset of its first header


def members(
    path: str, read: Read, begin: int = 0, content_size: int | None = None
) -> Iterator[Member]:
    """Yield the regular files of a tar file.

    Args:
        path: The tar file, for errors.
        read: Returns bytes at an offset of its content; fewer at the end.
        begin: The offset of a header.
        content_size: The length of the content, if it is known.

    Raises:
        CorruptFileError: If the file is not valid, or has links or sparse files.
    """
    at = first = begin
    long_name: str | None = None
    pax: dict[str, str] = {}
    global_pax: dict[str, str] = {}
    while True:
        head = read(at, BLOCK)
        if not head and at == first:
            return  # Without the blocks that mark the end, as some programs write it.
        if len(head) < BLOCK:
            raise _corrupt(path, at, "the file ends within a header")
        if head == _END:
            _check_end(path, read, at)
            return
        size, kind = _checked(path, head, at), head[156:157]
        content = at + BLOCK
        following = content + padded(size)
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _GLOBAL_PAX):
            if size > _LONGEST_HEADER:
                raise _corrupt(path, at, f"a header has {size:,} bytes")
            data = _complete(path, read(content, size), size, at)
            if kind == _LONG_NAME:
                long_name = _text(data.split(b"\0", 1)[0])
            elif kind == _PAX:
                pax = _pax_records(path, data, at)
            elif kind == _GLOBAL_PAX:
                global_pax |= _pax_records(path, data, at)
            at = following
            continue
        said = {**global_pax, **pax} if global_pax or pax else _NOTHING
        name = said.get("path") or long_name or _name(head)
        if "size" in pax:
            size = _pax_size(path, pax["size"], at)
            following = content + padded(size)
        if said or kind != b"0":
            _check_kind(path, kind, name, said, at)
        if kind != _FOLDER and not name.endswith("/"):
            if content_size is None:
                is_complete = not size or bool(read(content + size - 1, 1))
            else:
                is_complete = content + size <= content_size
            if not is_complete:
                raise _corrupt(path, at, f"the file ends within the member {name!r}")
            yield Member(name, content, size, first)
        elif kind == _FOLDER:
            following = content  # The size of a folder says nothing about its content.
        at = first = following
        long_name, pax = None, {}


def _checked(path: str, head: bytes, at: int) -> int:
    """Return the size in a header after a check of its checksum."""
    field = head[148:156]
    stated: int | None
    size: int | None
    try:
        # As most programs write them: digits, and then a zero or a space.
        stated, size = int(field[:6], 8), int(head[124:135], 8)
        is_usual = field[6] in _AFTER_DIGITS and head[135] in _AFTER_DIGITS
    except ValueError:
        is_usual = False
    if not is_usual:
        stated, size = _number(field), _number(head[124:136])
    # The lower half of adler32 is one more than the sum of the bytes, and much quicker than `sum`.
    # The checksum itself counts as eight spaces.
    total = (zlib.adler32(head) & 0xFFFF) - 1 - sum(field) + 8 * 32
    if stated is None or (total - stated) % _ADLER_PRIME:
        # Some old programs summed signed bytes.
        counted = head[:148] + b" " * 8 + head[156:]
        if stated != sum(counted) - 256 * sum(byte > 127 for byte in counted):
            raise _corrupt(path, at, "the checksum of a header is wrong")
    if size is None or size < 0:
        raise _corrupt(path, at, "the size of a member is not a number")
    return size


def _number(field: bytes) -> int | None:
    if field[0] & 0x80:
        # Large numbers are binary.
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
        return -1 if field[0] & 0x40 else value
    try:
        return int(field.partition(b"\0")[0] or b"0", 8)
    except ValueError:
        return None if field.partition(b"\0")[0].strip() else 0


def padded(size: int) -> int:
    """Return the space that a content takes."""
    return -(-size // BLOCK) * BLOCK


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _name(head: bytes) -> str:
    name = head[:100].partition(b"\0")[0]
    if head[345] and head[257:263] == b"ustar\0":
        name = head[345:500].partition(b"\0")[0] + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _pax_records(path: str, data: bytes, at: int) -> dict[str, str]:
    records: dict[str, str] = {}
    start = 0
    while start < len(data) and data[start]:
        match = _PAX_RECORD.match(data, start)
        stop = start + int(match[1]) if match else 0
        if match is None or not match.end() < stop <= len(data) or data[stop - 1] != 10:
            raise _corrupt(path, at, "a pax header is not valid")
        records[_text(match[2])] = _text(data[match.end() : stop - 1])
        start = stop
    return records


def _pax_size(path: str, text: str, at: int) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise _corrupt(path, at, "the size in a pax header is not a number")
    return int(text)


def _check_kind(path: str, kind: bytes, name: str, said: dict[str, str], at: int) -> None:
    if kind == _SPARSE or any(key.startswith("GNU.sparse.") for key in said):
        raise _refused(path, name, at, "a sparse file")
    if kind in _LINKS:
        raise _refused(path, name, at, _LINKS[kind])
    if kind in _SPECIAL:
        raise _refused(path, name, at, _SPECIAL[kind])
    if kind not in (b"0", b"\0", b"7", _FOLDER):
        raise _refused(path, name, at, f"of the unknown type {kind!r}")


def _refused(path: str, name: str, at: int, what: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path!r}, at byte {at}: the member {name!r} is {what}, which cannot be read. Write the"
        " tar file again with regular files (`tar --dereference --hard-dereference`)."
    )


def _complete(path: str, data: bytes, size: int, at: int) -> bytes:
    if len(data) < size:
        raise _corrupt(path, at, "the file ends within a header")
    return data


def _check_end(path: str, read: Read, at: int) -> None:
    """Raise if anything follows the end: other programs would silently ignore it."""
    step = 1 << 20
    while data := read(at, step):
        rest = data.lstrip(b"\0")
        if rest:
            raise _corrupt(
                path,
                at + len(data) - len(rest),
                "more data follows the end of the archive. Were several tar files concatenated?"
                " Pass them as separate files",
            )
        at += len(data)


def _corrupt(path: str, at: int, problem: str) -> CorruptFileError:
    return CorruptFileError(f"{path!r} is not a valid tar file: at byte {at}: {problem}.")


class Sample(NamedTuple):
    """The members of a tar file with one key: WebDataset's notion of a record."""

    key: str
    fields: dict[str, Member]


def key_and_field(name: str) -> tuple[str | None, str]:
    """Return the key of a member's sample, and its field; None if it is not a part of a sample."""
    match = _KEY.fullmatch(name)
    if match is None or (name.startswith("__") and _META.match(name)):
        return None, ""
    return match[1], match[2].lower()


def samples(
    path: str, found: Iterator[Member], visit: Callable[[Member, str], None] | None = None
) -> Iterator[Sample]:
    """Group consecutive members by key, as WebDataset does.

    Files without an extension and files whose names start with `__name__` are skipped.

    Args:
        path: The tar file, for errors.
        found: Its members.
        visit: Called with each member of a sample and its field, before the next is read.
    """
    sample: Sample | None = None
    for member in found:
        key, field = key_and_field(member.name)
        if key is None:
            continue
        if visit is not None:
            visit(member, field)
        if sample is None or sample.key != key:
            if sample is not None:
                yield sample
            sample = Sample(key, {})
        if field in sample.fields:
            raise _corrupt(
                path, member.header, f"the member {member.name!r} is there twice in one sample"
            )
        sample.fields[field] = member
    if sample is not None:
        yield sample
