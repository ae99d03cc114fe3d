"""The folder of an unfinished conversion. Only files that a conversion has written are removed.

A marker in the folder shows that a conversion created it, and the phase of that conversion. A
folder without a marker is neither used nor changed. In a marked folder, files with names that a
conversion does not use are not changed.
"""

import contextlib
import enum
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from wholegrain._cli.errors import BadInput
from wholegrain._shards.files import TEMPORARY, sync_folder, write_whole

PLAN, PROGRESS, FILES, DONE = "plan.json", "progress", "files", "done-{:05d}"
_MARKER = "made-by-wholegrain-convert.json"
_OWN = re.compile(rf"{re.escape(PLAN)}|{PROGRESS}|done-\d{{5,}}|{TEMPORARY}", re.DOTALL)


class Stage(enum.StrEnum):
    """The phase of a conversion."""

    WRITING = "writing"
    PLACING = "putting shards in their places"
    FINISHED = "finished"


class WorkFolder:
    """The folder `DST.converting`.

    Args:
        destination: The destination of the conversion.
    """

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self.path = Path(f"{destination}.converting")
        base, ending = os.path.splitext(os.path.basename(destination))
        number = r"-\d{5,}-of-\d{5,}"
        base, ending = re.escape(base), re.escape(ending)
        self._shards = re.compile(f"{base}({number})?{ending}({number})?", re.DOTALL)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and lock the destination against other conversions."""
        # The system releases the lock when this process ends, even if it is killed.
        descriptor = self._lock()
        try:
            self._claim()
            yield
        finally:
            with contextlib.suppress(OSError):
                if os.listdir(self.path) == [_MARKER]:
                    self.remove()  # nothing was started
            os.close(descriptor)

    def _lock(self) -> int:
        while True:
            with contextlib.suppress(FileExistsError):
                self.path.mkdir()
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue  # another process has just finished and removed it
            except OSError:
                raise self._not_ours("is not a folder, or is a link") from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    return descriptor
            except FileNotFoundError:
                pass
            except BlockingIOError:
                os.close(descriptor)
                raise BadInput(f"Another conversion to {self._destination!r} is running.") from None
            os.close(descriptor)

    def _claim(self) -> None:
        names = sorted(os.listdir(self.path))
        if _MARKER in names:
            return
        if names:
            raise self._not_ours(f"has {names[0]!r} in it")
        (self.path / _MARKER).touch()

    def _not_ours(self, reason: str) -> BadInput:
        return BadInput(
            f"{str(self.path)!r} {reason}, so no conversion has created it. It is where unfinished"
            f" parts of {self._destination!r} would go: move it away, or write somewhere else."
        )

    @property
    def stage(self) -> Stage:
        """The current phase."""
        try:
            return Stage(json.loads((self.path / _MARKER).read_text())["stage"])
        except (OSError, ValueError, KeyError, TypeError):
            return Stage.WRITING

    def enter(self, stage: Stage) -> None:
        """Save the phase to disk."""
        content = {"DST": os.path.abspath(self._destination), "stage": str(stage)}
        write_whole(self.path / _MARKER, json.dumps(content).encode())
        sync_folder(self.path)

    def clear(self) -> None:
        """Remove what conversions have written, and nothing else."""
        for entry in list(os.scandir(self.path)):
            if entry.name == FILES and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif self._is_own(entry):
                os.unlink(entry.path)

    def _is_own(self, entry: "os.DirEntry[str]") -> bool:
        named = _OWN.fullmatch(entry.name) or self._shards.fullmatch(entry.name)
        return named is not None and entry.is_file(follow_symlinks=False)

    def remove_temporary_files(self) -> None:
        """Remove the temporary files of killed processes."""
        for entry in list(os.scandir(self.path)):
            if re.fullmatch(TEMPORARY, entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)

    def remove(self) -> None:
        """Remove what conversions have written, and the folder if it is empty then."""
        self.clear()
        (self.path / _MARKER).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()
