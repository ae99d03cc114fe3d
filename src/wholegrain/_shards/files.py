"""Files that are written atomically, even if the process is killed."""

import os
import secrets
from pathlib import Path

# The names that `temporary_name` returns.
TEMPORARY = r"\.\d+-\d+\.tmp"


def sync(path: Path) -> None:
    """Sync a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync the directory entries of a folder to disk."""
    sync(path)


def temporary_name(folder: Path) -> Path:
    """Return a name in a folder that no other process or thread uses, on any machine."""
    return folder / f".{os.getpid()}-{secrets.randbits(63)}.tmp"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: under a temporary name first, then rename it."""
    temporary = temporary_name(path.parent)
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
