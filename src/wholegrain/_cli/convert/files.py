"""Files that are there as a whole or not at all, whenever the process is killed."""

import os
import threading
from pathlib import Path

# The names that `temporary_name` gives.
TEMPORARY = r"\.\d+-\d+\.tmp"


def sync(path: Path) -> None:
    """Have the system write a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Have the system write to the disk which files are in a folder."""
    sync(path)


def temporary_name(folder: Path) -> Path:
    """Return a name in a folder that no other process or thread uses."""
    return folder / f".{os.getpid()}-{threading.get_ident()}.tmp"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name first, so that it never is there in part."""
    temporary = temporary_name(path.parent)
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
