"""The Orbax handler that writes and reads the position of an iterator."""

from __future__ import annotations

import contextlib
from typing import Any

from wholegrain._state import files
from wholegrain.sharding import ShardOptions, as_process


class CheckpointHandler:
    """Saves an iterator's state as one JSON file per process, and restores it.

    It supports iterators of datasets and of DataLoaders. Use it through `CheckpointSave` and
    `CheckpointRestore`, alone or together with a model's state. Without Orbax, call `save` and
    `restore` with a directory that exists.

    Args:
        process_index: The index of this process, in a job whose processes jax does not know.
        process_count: The number of processes.

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
        with self._as_this_process():
            files.save(item, directory)

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        """Restore an iterator from `directory`, and return it."""
        item = item if item is not None else args.item
        with self._as_this_process():
            files.restore(item, directory)
        return item

    def structure(self, directory: Any) -> Any:
        """Return None: Orbax needs no structure before restoring."""
        return None

    def metadata(self, directory: Any) -> Any:
        """Return None: there is no metadata."""
        return None

    def finalize(self, directory: Any) -> None:
        """Do nothing: a file is complete when it is written."""

    def close(self) -> None:
        """Do nothing: no resource is held."""

    @classmethod
    def typestr(cls) -> str:
        """Return the name under which Orbax records the handler of an item."""
        return f"{cls.__module__}.{cls.__qualname__}"
