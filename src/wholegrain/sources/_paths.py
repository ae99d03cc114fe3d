"""File names: patterns, sharded names, and their expansion."""

import fnmatch
import glob
import hashlib
import os
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from wholegrain.sources import _cached, _remote
from wholegrain.sources._errors import PathTypeError, missing_file
from wholegrain.sources._remote import is_remote as is_remote

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_WILDCARD = re.compile(r"[*?\[]")
_NO_DOT = r"(?!\.)"
# "name@16" or "name@16.bagz": shards 0 to 15. "name@*": all existing shards.
_SHARDED = re.compile(r"(?P<base>.*[^/])@(?P<count>\d+|\*)(?P<suffix>(\.[^@/]*)?)", re.DOTALL)


def to_text(path: object) -> str:
    """Return a path as a string; a `file://` address becomes a local path."""
    if isinstance(path, (str, bytes, os.PathLike)):
        name = os.fsdecode(path)
        return unquote(urlsplit(name).path) if name.startswith("file://") else name
    raise PathTypeError(
        f"A path has to be a string or a path object, but got {path!r} of type"
        f" {type(path).__name__}."
    )


def expand(path: str) -> list[str]:
    """Return the files that `path` expands to.

    A local file that exists is not expanded, whatever characters its name contains. A sharded
    name expands to its shards, and a pattern to the matching files, sorted by name.
    """
    if not is_remote(path) and os.path.exists(path):
        return [path]
    if sharded := _SHARDED.fullmatch(path):
        base, count, suffix = sharded["base"], sharded["count"], sharded["suffix"]
        if count == "*":
            return _matching(f"{base}-[0-9]*-of-[0-9]*{suffix}", path)
        number = int(count)
        if number == 0:
            raise ValueError(f"{path!r} names no files: a sharded name needs at least one shard.")
        return [f"{base}-{shard:05d}-of-{number:05d}{suffix}" for shard in range(number)]
    if _WILDCARD.search(path):
        return _matching(path, path)
    return [path]


def _matching(pattern: str, given: str) -> list[str]:
    found = matching_objects(pattern) if is_remote(pattern) else glob.glob(pattern, recursive=True)
    if not found:
        raise missing_file(given, "No file matches the pattern")
    return sorted(found)


def matching_objects(pattern: str) -> list[str]:
    """Return the addresses of the objects in a store that match `pattern`."""
    _, key = _remote.locate(pattern)
    address = pattern[: len(pattern) - len(key)]
    wildcard = _WILDCARD.search(key)
    folder = key[: wildcard.start() if wildcard else len(key)].rpartition("/")[0]
    matches = re.compile(_translate(key)).fullmatch
    return [address + found for found in _cached.list_under(address + folder) if matches(found)]


def _translate(pattern: str) -> str:
    """Return the regular expression of a pattern, with the rules of `glob`.

    `*` stays within a folder, and no wildcard matches a dot at the begin of a name.
    """
    special = {
        "**/": rf"(?:{_NO_DOT}[^/]*/)*",
        "**": rf"[^/]*(?:/{_NO_DOT}[^/]*)*",
        "*": "[^/]*",
        "?": "[^/]",
    }
    found = ""
    begins = True  # whether a name begins here
    for part in filter(None, re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", pattern)):
        wildcard = _character_set(part) if part.startswith("[") else special.get(part)
        if wildcard is not None and begins and part != "**/":
            found += _NO_DOT
        found += re.escape(part) if wildcard is None else wildcard
        begins = part.endswith("/")
    return found


def _character_set(part: str) -> str:
    # fnmatch wraps its result in "(?s:...)\Z"; only the character set is needed.
    translated = fnmatch.translate(part)
    match = re.search(r"\[.*\]", translated, re.DOTALL)
    return match[0] if match else re.escape(part)


def expand_all(paths: object, *, of: str) -> list[str]:
    """Return all files that a path, or a sequence of paths, expands to.

    Args:
        paths: What the user passed.
        of: The name of the source class, for error messages.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise PathTypeError(
            f"`{of}` needs a path or a sequence of paths, but got {paths!r} of type"
            f" {type(paths).__name__}."
        )
    if not paths:
        raise ValueError(f"`{of}` needs at least one path, but got an empty sequence.")
    return [file for path in paths for file in expand(to_text(path))]


def summary(paths: Sequence[str]) -> str:
    """Return a short text that identifies files in a `repr`, the same in every process."""
    if len(paths) == 1:
        return repr(paths[0])
    digest = hashlib.sha1("\0".join(paths).encode(), usedforsecurity=False).hexdigest()
    return f"{len(paths)} files, hash_of_paths={digest}"
