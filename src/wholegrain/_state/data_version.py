"""Which versions of its files a source reads: what changes if their content does."""

import os
from collections.abc import Callable, Sequence
from typing import Any

objects: Callable[[list[str]], list[str]] | None = None
"""Returns the versions of objects in stores. Reading from stores sets it."""


def data_version(source: Any) -> list[Any]:
    """Return what identifies the content of the files that a source reads.

    Sources say which files they are with `_data_paths`, or `_shown_paths`. Nothing is known about
    sources that do neither.
    """
    if not type(source).__module__.startswith("wholegrain."):
        return []
    shown: Sequence[str] = getattr(source, "_shown_paths", ())
    paths: Sequence[str] = getattr(source, "_data_paths", shown)
    remote = [path for path in paths if "://" in path]
    versions: list[Any] = [_version(path) for path in paths if "://" not in path]
    if remote and objects is not None:
        versions += objects(remote)
    return versions


def _version(path: str) -> list[int]:
    try:
        found = os.stat(path)
    except OSError:
        return []  # A pattern, or a name that only a library understands.
    return [found.st_size, found.st_mtime_ns]
