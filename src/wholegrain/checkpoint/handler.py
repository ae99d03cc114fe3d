"""How Orbax writes and reads the position of an iterator."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wholegrain._state import files as saving
from wholegrain.sharding import ShardOptions, as_process, jax_process


class CheckpointHandler:
    """Saves an iterator's state as one JSON file per process, and restores it.

    Works for iterators of datasets and of DataLoaders. It is used through `CheckpointSave` and
    `CheckpointRestore`, alone or beside a model's state. Without Orbax, call `save` and `restore`
    with a directory that exists.

    Args:
        process_index: Which process this is, in a job whose processes jax does not know.
        process_count: How many there are.

    Example:
        >>> manager = ocp.CheckpointManager(directory)
        >>> manager.save(step, args=CheckpointSave(iterator))
        >>> manager.restore(step, args=CheckpointRestore(iterator))
    """

    _process: ShardOptions | None = None

    def __init__(
        self, *, process_index: int | None = None, process_count: int | None = None
    ) -> None:
        if process_index is not None and process_count is not None:
            self._process = ShardOptions(process_index, process_count)
        elif process_index is not None or process_count is not None:
            raise ValueError(
                "`process_index` and `process_count` belong together, but got"
                f" process_index={process_index} and process_count={process_count}."
            )

    def _as_this_process(self) -> contextlib.AbstractContextManager[None]:
        if self._process is None:
            return contextlib.nullcontext()
        return as_process(self._process.shard_index, self._process.shard_count)

    def save(self, directory: Any, item: Any = None, args: Any = None) -> None:
        """Write the state of an iterator into `directory`."""
        item = item if item is not None else args.item
        directory = as_path(directory)
        with self._as_this_process():
            files = files_of(item)
        saving.write_all(directory, files)

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        """Bring an iterator to the state in `directory`, and return it."""
        item = item if item is not None else args.item
        with self._as_this_process():
            restore_files(as_path(directory), item)
        item.start_prefetch()
        return item

    def structure(self, directory: Any) -> Any:
        """Return None: there is nothing to know before restoring."""
        return None

    def metadata(self, directory: Any) -> Any:
        """Return None: there is nothing to know before restoring."""
        return None

    def finalize(self, directory: Any) -> None:
        """Do nothing: a file is complete when it is written."""

    def close(self) -> None:
        """Do nothing: no resource is held."""

    @classmethod
    def typestr(cls) -> str:
        """Return the name under which Orbax notes who wrote an item."""
        return f"{cls.__module__}.{cls.__qualname__}"


def restore_files(directory: Any, item: Any) -> None:
    """Bring an iterator to the state in `directory`, which may be that of other processes."""
    shards = _shard_states(directory, item)
    file = None if shards is not None else _own_file(directory, item)
    state = None if file is None else saving.read_json(file)
    saving.check_pipeline(item, directory)
    if shards is not None:
        item.set_shard_states(shards)
    else:
        _restore_state(item, state, directory)


def as_path(directory: Any) -> Any:
    """Return a directory as a path with `/`, `write_text` and `read_text`."""
    if hasattr(directory, "write_text"):
        return directory  # Orbax's own, which may be in a store.
    if isinstance(directory, (str, os.PathLike)):
        return Path(directory)
    raise TypeError(f"`directory` has to be a path, but got {directory!r}.")


def files_of(item: Any) -> dict[str, str]:
    """Return the texts to write for an iterator, by file name."""
    state = item.get_state()
    text = state.decode() if isinstance(state, bytes) else saving.state_text(state)
    files = {saving.state_filename(): text}
    if _has_shards(item):
        for number, shard in item.get_shard_states().items():
            files[f"shard_state_{number}.json"] = saving.state_text(shard)
    return files | saving.pipeline_file(item)


def _has_shards(item: Any) -> bool:
    return bool(getattr(item, "has_shard_states", False))


_PROCESS_FILE = re.compile(r"process_(\d+)-of-(\d+)\.json$")
_SHARD_FILE = re.compile(r"shard_state_(\d+)\.json$")


def _own_file(directory: Any, item: Any) -> Any:
    """Return the file of this process."""
    file = directory / saving.state_filename()
    if file.exists():
        return file
    states = [name for name in saving.names_in(directory) if _PROCESS_FILE.match(name)]
    if states and getattr(item, "any_state_fits", False):
        return directory / states[0]
    raise saving.missing_file(file, directory)


def _shard_states(directory: Any, item: Any) -> Mapping[int, Any] | None:
    """Return the states of single datasets, where they were dealt out to other processes."""
    if not _has_shards(item):
        return None
    names = saving.names_in(directory)
    counts = [int(match[2]) for name in names if (match := _PROCESS_FILE.match(name))]
    numbers = [int(match[1]) for name in names if (match := _SHARD_FILE.match(name))]
    if saving.state_filename() in names and max(counts) == jax_process()[1]:
        return None
    if not numbers:
        return None  # Another kind of iterator was saved here, if any.
    options = item.shard_options
    shards: dict[int, Any] = {}
    for number in range(options.shard_index, max(numbers) + 1, options.shard_count):
        file = directory / f"shard_state_{number}.json"
        if number not in numbers:
            raise ValueError(
                f"File {file} does not exist, though there are states of {len(numbers)} datasets in"
                f" that directory, up to number {max(numbers)}. Did a process not finish writing?"
            )
        shards[number] = saving.read_json(file)
    return shards


def _restore_state(item: Any, state: Any, directory: Any) -> None:
    is_loader = isinstance(item.get_state(), bytes)
    of_loader = isinstance(state, dict) and "last_seen_indices" in state
    if of_loader and not is_loader:
        raise ValueError(
            f"The state in {directory} is that of a DataLoader's iterator, but it was to be"
            f" restored into {type(item).__name__}, an iterator of a dataset."
        )
    item.set_state(json.dumps(state).encode() if is_loader else state)
