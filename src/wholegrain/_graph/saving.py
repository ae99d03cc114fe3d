"""States as files: what Orbax's newer interface asks of an iterator."""

import json
import os
import re
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from wholegrain._core.config import config
from wholegrain._core.log import logger
from wholegrain._graph.write_barrier import others_to_wait_for
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
    except ValueError as error:
        raise ValueError(
            f"File {file} is damaged: it is not the JSON of an iterator's state ({error}). Restore"
            " another checkpoint."
        ) from error


def write_files(files: Mapping[str, str], directory: Any) -> Coroutine[Any, Any, None]:
    """Return a coroutine that writes files when `directory` has been made."""
    return _write_files(files, directory, others_to_wait_for())


async def _write_files(
    files: Mapping[str, str], directory: Any, wait_for_others: Callable[[Any], None] | None
) -> None:
    import asyncio  # Takes long to import, and few need it.

    path = await directory.await_creation()

    def write() -> None:
        for name, content in files.items():
            (path / name).write_text(content)
        if wait_for_others is not None:
            wait_for_others(path)

    await asyncio.to_thread(write)


def missing_file(file: Any, directory: Any) -> ValueError:
    """Return the error for a process whose state is not there."""
    names = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
    states = [name for name in names if _STATE_FILE.match(name)]
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
    from pathlib import Path

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
    from wholegrain._graph.fingerprint import fingerprint  # It knows datasets, and those this.

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
    from wholegrain._graph import fingerprint_changes
    from wholegrain._graph.fingerprint import fingerprint

    try:
        saved, own = json.loads(file.read_text()), fingerprint(iterator)
        if saved["version"] > own["version"]:
            raise ValueError("a later release wrote it")
        changes = fingerprint_changes.compare(saved, own)
    except Exception as error:
        warnings.warn(
            f"Whether the checkpoint belongs to this pipeline was not checked: {file} cannot be"
            f" read ({error!r}).",
            stacklevel=3,
        )
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


def _pipeline_file_in(directory: Any, iterator: Any) -> Any:
    """Return the file that describes the pipeline that wrote a checkpoint; None without one."""
    index, count = jax_process()
    file = directory / f"pipeline_{index}-of-{count}.json"
    if file.exists():
        return file
    if hasattr(iterator, "shard_options"):
        # An elastic one describes the pipeline of all processes, however many there were.
        return next((one for one in directory.iterdir() if _PIPELINE_FILE.match(one.name)), None)
    return None


_PIPELINE_FILE = re.compile(r"pipeline_\d+-of-\d+\.json$")


def _listed(changes: list[str]) -> str:
    return "".join(f"\n  - {change}" for change in changes)
