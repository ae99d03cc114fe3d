"""States as files: what Orbax's newer interface asks of an iterator."""

import json
import os
from typing import Any

import numpy as np

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


async def write_state(text: str, directory: Any) -> None:
    """Write the text of a state into `directory` when that has been made."""
    import asyncio  # Takes long to import, and few need it.

    path = await directory.await_creation()
    await asyncio.to_thread((path / state_filename()).write_text, text)


async def read_state(iterator: Any, directory: Any) -> None:
    """Read the state of this process from `directory` and restore `iterator`."""
    import asyncio
    from pathlib import Path

    path = Path(directory) if isinstance(directory, (str, os.PathLike)) else directory
    file = path / state_filename()
    if not await asyncio.to_thread(file.exists):
        raise ValueError(
            f"File {file} does not exist. Was the checkpoint written with another number of"
            " processes?"
        )
    iterator.set_state(json.loads(await asyncio.to_thread(file.read_text)))
    iterator.start_prefetch()
