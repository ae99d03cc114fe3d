"""States as files: what Orbax's newer interface asks of an iterator."""

import contextlib
import json
import operator
import os
import re
import warnings
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._core.config import config
from wholegrain._core.log import logger
from wholegrain._state.barrier import others_to_wait_for
from wholegrain._state.changes import compare
from wholegrain._state.fingerprint import fingerprint
from wholegrain.sharding import jax_process


def state_text(state: Any) -> str:
    """Return the text of a state file."""
    return json.dumps(state, indent=4, default=_encode)


def _encode(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(
        f"An iterator state holds a {type(value).__name__}, which JSON cannot: {value!r}."
    )


def state_filename() -> str:
    """Return the name of the file that holds this process's state."""
    index, count = jax_process()
    return f"process_{index}-of-{count}.json"


def read_json(file: Any) -> Any:
    """Return the state in a file."""
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError, IsADirectoryError) as error:
        raise ValueError(
            f"File {file} is damaged: it is not the JSON of an iterator's state ({error}). Restore"
            " another checkpoint."
        ) from error


def names_in(directory: Any) -> list[str]:
    """Return the names of the files in a directory; none if there is no such directory."""
    try:
        return sorted(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_all(directory: Any, files: Mapping[str, str]) -> None:
    """Write files so that each is there whole, or the one of before, whatever happens meanwhile."""
    if not isinstance(directory, Path):
        # Orbax's: it moves the directory to its place when all is written.
        for name, text in files.items():
            (directory / name).write_text(text)
        return
    parts = {directory / f".{name}.{os.getpid()}": directory / name for name in files}
    try:
        for part, path in parts.items():
            with open(part, "w", encoding="utf-8") as file:
                file.write(files[path.name])
                file.flush()
                os.fsync(file.fileno())  # Before the name stands for it, also after a power cut.
        for part, path in parts.items():
            part.replace(path)
    except BaseException as error:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.add_note(f"The iterator could not be saved in {directory}.")
        raise
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    """Have the names in a directory written, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_files(files: Mapping[str, str], directory: Any) -> Coroutine[Any, Any, None]:
    """Return a coroutine that writes files when `directory` has been made."""
    return _write_files(files, directory, others_to_wait_for())


async def _write_files(
    files: Mapping[str, str], directory: Any, wait_for_others: Callable[[Any], None] | None
) -> None:
    import asyncio  # Takes long to import, and few need it.

    path = await directory.await_creation()

    def write() -> None:
        write_all(path, files)
        if wait_for_others is not None:
            wait_for_others(path)

    await asyncio.to_thread(write)


def missing_file(file: Any, directory: Any) -> ValueError:
    """Return the error for a process whose state is not there."""
    states = [name for name in names_in(directory) if _STATE_FILE.match(name)]
    index, count = jax_process()
    if not states:
        found = "There is no iterator state in that directory: is it the item of another name?"
    elif all(name.endswith(f"-of-{count}.json") for name in states):
        found = (
            f"There are {', '.join(states)}, but process {index} of {count} has not written there:"
            " was it stopped before, or does it see another disk? Restore another checkpoint, or"
            " make the file available to this process."
        )
    else:
        found = (
            f"There are {', '.join(states)}: the checkpoint was written by another number of"
            f" processes, and this is process {index} of {count}. Restore with the same number, or"
            " use an `ElasticIterator`."
        )
    return ValueError(f"File {file} does not exist. {found}")


_STATE_FILE = re.compile(r"process_\d+-of-\d+\.json$")


async def read_state(iterator: Any, directory: Any) -> None:
    """Read the state of this process from `directory` and restore `iterator`."""
    import asyncio

    path = Path(directory) if isinstance(directory, (str, os.PathLike)) else directory
    file = path / state_filename()
    if not await asyncio.to_thread(file.exists):
        raise missing_file(file, path)
    state = await asyncio.to_thread(read_json, file)
    await asyncio.to_thread(check_pipeline, iterator, path)
    iterator.set_state(state)
    iterator.start_prefetch()


def pipeline_file(iterator: Any) -> dict[str, str]:
    """Return the text that describes an iterator's pipeline, by file name; nothing if unknown."""
    if getattr(iterator, "opened_from", None) is None:
        return {}
    index, count = jax_process()
    try:
        text = json.dumps(fingerprint(iterator), indent=2)
    except Exception as error:
        # A `len` or `repr` of a user's: no reason to lose a checkpoint.
        logger().warning("The checkpoint goes without a description of its pipeline: %r", error)
        return {}
    return {f"pipeline_{index}-of-{count}.json": text}


def check_pipeline(iterator: Any, directory: Any) -> None:
    """Compare an iterator's pipeline with the one that wrote the checkpoint in `directory`.

    Raises:
        ValueError: If the saved position has no meaning in the iterator's pipeline.
    """
    if getattr(iterator, "opened_from", None) is None or not config.check_pipeline:
        return
    file = _pipeline_file_in(directory, iterator)
    if file is None:
        return  # Grain wrote it.
    own = _own_description(iterator)
    if own is None:
        return
    try:
        saved = json.loads(file.read_text())
        is_later = operator.index(saved["version"]) > own["version"]
        changes = None if is_later else compare(saved, own)
    except Exception as error:
        raise ValueError(
            f"File {file} is damaged: it is not the description of a pipeline ({error!r}). Restore"
            " another checkpoint; or delete the file, if the pipeline is the same."
        ) from error
    if changes is None:
        _warn_unchecked(f"{file} cannot be read, because a later release wrote it")
        return
    if changes.breaking:
        raise ValueError(
            f"The checkpoint in {directory} is of another pipeline: its position has no meaning in"
            f" this one.{_listed(changes.breaking)}\nRestore it with the pipeline that wrote it,"
            f" which {file} describes. To go to that position all the same, call"
            " `wholegrain.config.update('check_pipeline', False)` first."
        )
    if changes.harmless:
        warnings.warn(
            f"The pipeline is not quite the one that wrote the checkpoint in {directory}. The"
            f" position keeps its meaning.{_listed(changes.harmless)}",
            stacklevel=3,
        )


def _own_description(iterator: Any) -> Any:
    try:
        return fingerprint(iterator)
    except Exception as error:  # A `len` or `repr` of a user's.
        _warn_unchecked(f"it cannot be described ({error!r})")
        return None


def _warn_unchecked(reason: str) -> None:
    warnings.warn(
        f"Whether the checkpoint belongs to this pipeline was not checked: {reason}.", stacklevel=4
    )


def _pipeline_file_in(directory: Any, iterator: Any) -> Any:
    """Return the file that describes the pipeline that wrote a checkpoint; None without one."""
    index, count = jax_process()
    file = directory / f"pipeline_{index}-of-{count}.json"
    if file.exists():
        return file
    if hasattr(iterator, "shard_options"):
        # An elastic one describes the pipeline of all processes, however many there were.
        found = (name for name in names_in(directory) if _PIPELINE_FILE.match(name))
        return next((directory / name for name in found), None)
    return None


_PIPELINE_FILE = re.compile(r"pipeline_\d+-of-\d+\.json$")


def _listed(changes: list[str]) -> str:
    return "".join(f"\n  - {change}" for change in changes)
