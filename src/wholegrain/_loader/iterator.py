"""DataLoaderIterator: a position in a DataLoader, with a state in bytes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from wholegrain._graph import saving

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from wholegrain._loader.data_loader import DataLoader

_VERSION = 2

# What differs between two runs although the object is the same.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class DataLoaderIterator:
    """A position in a DataLoader that moves with `next`, and can be saved and restored.

    Args:
        data_loader: Where the elements come from.
        state: Where to start, as `json.loads` of what `get_state` returned; None for the start.
        validate_state: Whether the state has to be of a loader with the same sampler and source.
    """

    def __init__(
        self, data_loader: DataLoader, state: dict[str, Any] | None, validate_state: bool = True
    ) -> None:
        self._data_loader = data_loader
        self._iterator = data_loader._dataset.__iter__()  # noqa: SLF001
        if state is not None:
            if validate_state:
                self._validate(state)
            self._go_to(state)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def start_prefetch(self) -> None:
        """Start reading, or the workers, before the first element is asked for."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stop threads and workers. `next` is an error afterwards."""
        self._iterator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # States.

    def get_state(self) -> bytes:
        """Return the position, as of the last element that was handed out."""
        return self._state_text().encode()

    def set_state(self, state: bytes | bytearray | str | dict[str, Any]) -> None:
        """Go to a position that `get_state` returned, in this or another run."""
        if isinstance(state, dict):
            decoded = state
        else:
            text = state if isinstance(state, str) else bytes(state).decode()
            decoded = json.loads(text)
        self._validate(decoded)
        self._go_to(decoded)

    def _state_text(self) -> str:
        state = self._iterator.get_state()
        if not self._data_loader.has_flat_map:
            state = self._as_last_seen(state)
        return json.dumps(state, indent=4)

    @property
    def _workers(self) -> int:
        return self._data_loader.multiprocessing_options.num_workers

    def _as_last_seen(self, state: dict[str, Any]) -> dict[str, Any]:
        """Say the same by the sampler index that each worker saw last."""
        loader = self._data_loader
        options = loader._shard_options  # noqa: SLF001
        count, stride = options.shard_count, max(self._workers, 1) * options.shard_count
        if self._workers:
            places = [worker["next_index"] for worker in state["iterators_in_use_states"]]
            last_worker = state["next_index_in_cycle"] - 1
        else:
            places, last_worker = [state["next_index"]], -1
        return {
            "version": _VERSION,
            "last_seen_indices": {
                str(worker): (place - 1) * stride + worker * count + options.shard_index
                for worker, place in enumerate(places)
            },
            "last_worker_index": last_worker,
            "worker_count": self._workers,
            "sampler": repr(loader._sampler),  # noqa: SLF001
            "data_source": source_repr(loader._data_source),  # noqa: SLF001
        }

    def _validate(self, state: dict[str, Any]) -> None:
        loader = self._data_loader
        if loader.has_flat_map:
            return
        if "next_index" in state or "parent" in state or "parents" in state:
            raise ValueError(
                "This state is that of a dataset iterator, not of a DataLoader with these"
                f" operations: it has the keys {sorted(state)}."
            )
        if state.get("version", _VERSION) != _VERSION:
            raise ValueError(
                f"The state has version {state['version']}, but this release writes and reads"
                f" version {_VERSION}. Restore it with the release that wrote it."
            )
        if state["worker_count"] != self._workers:
            raise ValueError(
                "The state was taken with worker_count="
                f"{state['worker_count']}, but this DataLoader has worker_count={self._workers}."
                " Restore it with the same number."
            )
        self._compare("sampler", state["sampler"], repr(loader._sampler))  # noqa: SLF001
        self._compare("data_source", state["data_source"], source_repr(loader._data_source))  # noqa: SLF001

    def _compare(self, name: str, saved: str, own: str) -> None:
        if comparable(saved) != comparable(own):
            raise ValueError(
                f"The state was taken with another `{name}`:\n    {saved}\nbut this DataLoader"
                f" has\n    {own}\nIf they are the same, give the class a `__repr__` that says so."
            )

    def _go_to(self, state: dict[str, Any]) -> None:
        if self._data_loader.has_flat_map:
            self._iterator.set_state(state)
            return
        options = self._data_loader._shard_options  # noqa: SLF001
        count, index = options.shard_count, options.shard_index
        seen = state["last_seen_indices"]
        if not self._workers:
            self._iterator.set_state({"next_index": (int(seen["0"]) + count - index) // count})
            return
        workers = self._workers
        stride = workers * count
        places = [
            (int(seen[str(worker)]) + stride - index - worker * count) // stride
            for worker in range(workers)
        ]
        self._iterator.set_state(
            {
                "next_index_in_cycle": (int(state["last_worker_index"]) + 1) % workers,
                "next_index_in_datasets": workers,
                "iterators_in_use_indices": list(range(workers)),
                "iterators_in_use_states": [{"next_index": place} for place in places],
                "exhausted": [0] * workers,
                "future_states": {},
            }
        )

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Take the state now, and return a coroutine that writes it into `directory`."""
        return saving.write_state(self._state_text(), directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Return a coroutine that reads the state from `directory` and goes there."""
        return saving.read_state(self, directory)

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self._state_text()})"


def source_repr(source: Any) -> str:
    """Return how a source is named in a state: never by its data."""
    if isinstance(source, (list, tuple, np.ndarray)):
        return str(type(source))
    return repr(source)


def comparable(text: str) -> str:
    """Return what two representations of the same object have in common."""
    shared = re.match(r"SharedMemoryDataSource\(", text)
    if shared:
        return "SharedMemoryDataSource"
    return _ADDRESS.sub("", text)
