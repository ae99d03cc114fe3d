"""Checkpoint files: one writer and one reader, for `save` and `load` and for Orbax's handler.

Each process writes `process_<index>-of-<count>.json` with its state and `pipeline_...json` with a
description of its pipeline. An iterator whose datasets can be redistributed also writes
`shard_state_<number>.json` for each dataset. All names except that of the description are Grain's.
"""

import collections
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._core.interruption import suppress_errors
from wholegrain._core.names import kind_of
from wholegrain._state.pipeline_file import check_pipeline, description
from wholegrain.sharding import jax_process

_PROCESS_FILE = re.compile(r"process_(\d+)-of-(\d+)\.json$")
_PIPELINE_FILE = re.compile(r"pipeline_\d+-of-\d+\.json$")
_SHARD_FILE = re.compile(r"shard_state_(\d+)\.json$")

_BARRIER_TIMEOUT_S = 600

# How often each path was written: the name of a barrier can be used only once.
_times_written: collections.Counter[str] = collections.Counter()


# Saving.


def save(iterator: Any, directory: Any) -> None:
    """Write the state of an iterator into an existing directory."""
    _write_all(_as_path(directory), _files_of(iterator))


def save_later(iterator: Any, directory: Any) -> Coroutine[Any, Any, None]:
    """Take the state now, and return a coroutine that writes it once `directory` exists.

    Orbax's newer interface calls this.
    """
    return _write_when_made(_files_of(iterator), directory, _others_to_wait_for())


async def _write_when_made(
    files: Mapping[str, str], directory: Any, wait_for_others: Callable[[Any], None] | None
) -> None:
    import asyncio  # Slow to import and rarely needed.

    path = await directory.await_creation()

    def write() -> None:
        _write_all(path, files)
        if wait_for_others is not None:
            wait_for_others(path)

    await asyncio.to_thread(write)


def _files_of(iterator: Any) -> dict[str, str]:
    """Return the texts to write for an iterator, by file name."""
    state = iterator.get_state()
    text = state.decode() if isinstance(state, bytes) else state_text(state)
    files = {_own_name(): text}
    if _has_shards(iterator):
        for number, shard in iterator.get_shard_states().items():
            files[f"shard_state_{number}.json"] = state_text(shard)
    about = description(iterator)
    return files if about is None else files | {_own_name("pipeline"): about}


def state_text(state: Any) -> str:
    """Return the text of a state file."""
    return json.dumps(state, indent=4, default=_encode)


def _encode(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"An iterator state holds {kind_of(value)}, which JSON cannot: {value!r}.")


def _own_name(kind: str = "process") -> str:
    """Return the name of this process's file."""
    index, count = jax_process()
    return f"{kind}_{index}-of-{count}.json"


def _has_shards(iterator: Any) -> bool:
    return bool(getattr(iterator, "has_shard_states", False))


def _write_all(directory: Any, files: Mapping[str, str]) -> None:
    """Write each file atomically: after a crash it has either its old or its new content."""
    if not isinstance(directory, Path):
        # Orbax's own path: Orbax renames the directory when everything is written.
        for name, text in files.items():
            (directory / name).write_text(text)
        return
    parts = {directory / f".{name}.{os.getpid()}": directory / name for name in files}
    try:
        for part, path in parts.items():
            with open(part, "w", encoding="utf-8") as file:
                file.write(files[path.name])
                file.flush()
                os.fsync(file.fileno())  # Before the rename, so that it survives a power failure.
        for part, path in parts.items():
            part.replace(path)
    except BaseException as error:
        for part in parts:
            with suppress_errors(OSError):
                part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.add_note(f"The iterator could not be saved in {directory}.")
        raise
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    """Write the directory's entries to disk, if the file system supports that."""
    with suppress_errors(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _others_to_wait_for() -> Callable[[Any], None] | None:
    """Return a function that waits until all processes have called it with the same path.

    Orbax's newer interface finalizes a checkpoint when the first process has written, and files
    that other processes write later would be lost. So the writers wait for each other at a barrier.
    All processes of the job take part, because Orbax has no public way to ask whether fewer save.

    Return None if there are no other processes.
    """
    if jax_process()[1] == 1 or "orbax.checkpoint" not in sys.modules:
        return None
    try:
        from orbax.checkpoint import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            multihost,
        )

        wait = multihost.get_barrier_sync_fn()
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            "The iterators of several processes cannot be saved together: this release of Orbax"
            " lacks `multihost.get_barrier_sync_fn`, with which processes wait until all have"
            " written. Save them with `CheckpointManager` and `CheckpointSave`, or install another"
            " release of Orbax."
        ) from error

    def wait_for_others(path: Any) -> None:
        _times_written[str(path)] += 1
        key = f"wholegrain {path} {_times_written[str(path)]}"
        wait(key=key, timeout_ms=_BARRIER_TIMEOUT_S * 1000)

    return wait_for_others


# Restoring.


def restore(iterator: Any, directory: Any) -> None:
    """Restore an iterator from `directory`, which other processes may have written."""
    _read(iterator, _as_path(directory))()
    iterator.start_prefetch()


async def restore_later(iterator: Any, directory: Any) -> None:
    """Do the same when awaited, and read the files in a thread."""
    import asyncio

    go_there = await asyncio.to_thread(_read, iterator, _as_path(directory))
    go_there()
    iterator.start_prefetch()


def _read(iterator: Any, directory: Any) -> Callable[[], None]:
    """Read the files for an iterator, and return a function that restores it."""
    if getattr(iterator, "has_lane_states", False):
        lanes = _lane_state(directory, iterator)
        check_pipeline(iterator, directory, _pipeline_file_in(directory, iterator))
        return functools.partial(iterator.set_state, lanes)
    shards = _shard_states(directory, iterator)
    state = _read_json(_own_file(directory, iterator)) if shards is None else None
    check_pipeline(iterator, directory, _pipeline_file_in(directory, iterator))
    if shards is not None:
        return functools.partial(iterator.set_shard_states, shards)
    return functools.partial(_set_state, iterator, state, directory)


def _as_path(directory: Any) -> Any:
    """Return a directory as a path with `/`, `write_text` and `read_text`."""
    if hasattr(directory, "write_text"):
        return directory  # Orbax's own path, which may be in a remote store.
    if isinstance(directory, (str, os.PathLike)):
        return Path(directory)
    raise TypeError(f"`directory` has to be a path, but got {directory!r}.")


def _read_json(file: Any) -> Any:
    """Return the state in a file."""
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError, IsADirectoryError) as error:
        raise ValueError(
            f"File {file} is damaged: it is not the JSON of an iterator's state ({error}). Restore"
            " another checkpoint."
        ) from error


def _names_in(directory: Any) -> list[str]:
    """Return the names of the files in a directory; none if there is no such directory."""
    try:
        return sorted(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _own_file(directory: Any, item: Any) -> Any:
    """Return the file of this process."""
    file = directory / _own_name()
    if file.exists():
        return file
    states = [name for name in _names_in(directory) if _PROCESS_FILE.match(name)]
    if states and getattr(item, "any_state_fits", False):
        return directory / states[0]
    raise _missing_file(file, directory)


def _missing_file(file: Any, directory: Any) -> ValueError:
    """Return the error for a process whose state file is missing."""
    states = [name for name in _names_in(directory) if _PROCESS_FILE.match(name)]
    index, count = jax_process()
    if not states:
        found = (
            "There is no iterator state in that directory. If it was saved as one item of several,"
            " restore the item under the name it was saved with."
        )
    elif all(name.endswith(f"-of-{count}.json") for name in states):
        found = (
            f"There are {', '.join(states)}, but process {index} of {count} has not written there."
            " It may have been stopped, or it may see another disk. Restore another checkpoint, or"
            " make the file available to this process."
        )
    else:
        found = (
            f"There are {', '.join(states)}: the checkpoint was written by another number of"
            f" processes, and this is process {index} of {count}. Restore with the same number, or"
            " use an `ElasticIterator`."
        )
    return ValueError(f"File {file} does not exist. {found}")


def _shard_states(directory: Any, item: Any) -> Mapping[int, Any] | None:
    """Return the states of this process's datasets if other processes wrote them, else None."""
    if not _has_shards(item):
        return None
    names = _names_in(directory)
    counts = [int(match[2]) for name in names if (match := _PROCESS_FILE.match(name))]
    numbers = [int(match[1]) for name in names if (match := _SHARD_FILE.match(name))]
    if _own_name() in names and max(counts) == jax_process()[1]:
        return None
    if not numbers:
        return None  # Another kind of iterator was saved here, or none.
    options = item.shard_options
    shards: dict[int, Any] = {}
    for number in range(options.shard_index, max(numbers) + 1, options.shard_count):
        file = directory / f"shard_state_{number}.json"
        if number not in numbers:
            raise ValueError(
                f"File {file} does not exist, though that directory has states of {len(numbers)}"
                f" datasets, up to number {max(numbers)}. Did a process not finish writing?"
            )
        shards[number] = _read_json(file)
    return shards


def _lane_state(directory: Any, item: Any) -> Any:
    """Return the states of this process's lanes, which other processes may have written."""
    matches = [match for name in _names_in(directory) if (match := _PROCESS_FILE.match(name))]
    counts = {int(match[2]) for match in matches}
    if not counts:
        raise _missing_file(directory / _own_name(), directory)
    if len(counts) > 1:
        raise ValueError(
            f"{directory} has states of {' and of '.join(map(str, sorted(counts)))} processes, and"
            " it is not clear which are the latest. Use a folder for each save, or delete the"
            " older ones."
        )
    (count,) = counts
    # A process has usually saved the part of the lanes that its number says; else read all files.
    share = item.lanes / count
    likely = [
        n
        for n in range(count)
        if n * share < item.owned.stop and (n + 1) * share > item.owned.start
    ]
    states = [_read_json(_file_of(directory, n, count)) for n in likely]
    merged = item.merged(states)
    if {str(lane) for lane in item.owned} <= set(merged["lane_states"]):
        return merged
    others = [n for n in range(count) if n not in likely]
    return item.merged([*states, *(_read_json(_file_of(directory, n, count)) for n in others)])


def _file_of(directory: Any, index: int, count: int) -> Any:
    file = directory / f"process_{index}-of-{count}.json"
    if file.exists():
        return file
    raise ValueError(
        f"File {file} does not exist, so lanes are missing: {count} processes have saved, and"
        f" process {index} has not finished writing, or wrote to another disk. Restore another"
        " checkpoint, or make the file available."
    )


def _pipeline_file_in(directory: Any, iterator: Any) -> Any:
    """Return the file that describes the pipeline of a checkpoint; None if there is none."""
    file = directory / _own_name("pipeline")
    if file.exists():
        return file
    if hasattr(iterator, "shard_options"):
        # An elastic iterator writes the same description for any number of processes.
        found = (name for name in _names_in(directory) if _PIPELINE_FILE.match(name))
        return next((directory / name for name in found), None)
    return None


def _set_state(item: Any, state: Any, directory: Any) -> None:
    is_loader = isinstance(item.get_state(), bytes)
    of_loader = isinstance(state, dict) and "last_seen_indices" in state
    if of_loader and not is_loader:
        raise ValueError(
            f"The state in {directory} belongs to a DataLoader's iterator, but it was restored into"
            f" {type(item).__name__}, an iterator of a dataset."
        )
    item.set_state(json.dumps(state).encode() if is_loader else state)
