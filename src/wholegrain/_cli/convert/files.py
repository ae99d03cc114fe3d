"""Files that are there as a whole or not at all, whenever the process is killed."""

import os
import shutil
from pathlib import Path


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


def temporary_name(path: Path) -> Path:
    """Return a name beside `path` that no other process uses."""
    return path.with_name(f".{os.getpid()}.{path.name}.tmp")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name first, so that it never is there in part."""
    temporary = temporary_name(path)
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def empty(folder: Path) -> None:
    """Remove what is in a folder."""
    for path in list(folder.iterdir()):
        remove(path)


def remove_temporary_files(folder: Path) -> None:
    """Remove what processes that were killed have left in a folder and below."""
    for file in [*folder.glob(".*.tmp"), *folder.glob("**/.*.tmp")]:
        file.unlink(missing_ok=True)
