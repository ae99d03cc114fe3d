"""DataLoaderIterator: a position in a DataLoader, with a state in bytes."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Self

from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._graph import saving
from wholegrain._graph.auto_prefetch import set_worker_count
from wholegrain._loader import naming

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from wholegrain._loader.data_loader import DataLoader

_VERSION = 2


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
        metrics: list[Any] | None = getattr(self._iterator, "metrics", None)
        if metrics:  # Only where they were asked for.
            from wholegrain._observe.prometheus import LOADER_GET_NEXT

            metrics.append(LOADER_GET_NEXT)
        if state is not None:
            if validate_state:
                self._validate(state)
            self._go_to(state)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._iterator)
        except Exception as error:
            keep_user_frames(error)
            raise

    def start_prefetch(self) -> None:
        """Start reading, or the workers, before the first element is asked for."""
        self._iterator.start_prefetch()

    @property
    def opened_from(self) -> Any:
        """The pipeline that the DataLoader stands for."""
        return self._data_loader._dataset  # noqa: SLF001

    def set_worker_count(self, count: int | None) -> None:
        """Have that many workers from now on; None to let their number be found out again.

        Needs `worker_count="auto"`. The elements, their order and the states stay what they are.
        """
        set_worker_count(self._iterator, count)

    def report(self) -> Any:
        """Say what is slow in this pipeline, and why; see `DatasetIterator.report`."""
        return self._iterator.report()

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
        if self._data_loader.has_flat_map:
            return json.dumps(state, indent=4)
        return self._as_last_seen(state)

    @property
    def _workers(self) -> int:
        """How many workers the order and the states depend on."""
        workers = self._data_loader.multiprocessing_options.num_workers
        return 0 if workers == "auto" else workers

    def _as_last_seen(self, state: dict[str, Any]) -> str:
        """Say the same by the sampler index that each worker saw last."""
        options = self._data_loader._shard_options  # noqa: SLF001
        count, workers = options.shard_count, self._workers
        if workers:
            places = [worker["next_index"] for worker in state["iterators_in_use_states"]]
            last_worker = state["next_index_in_cycle"] - 1
        else:
            places, last_worker = [state["next_index"]], -1
        stride = len(places) * count
        seen = ",\n".join(
            f'        "{worker}": {(place - 1) * stride + worker * count + options.shard_index}'
            for worker, place in enumerate(places)
        )
        # This is `json.dumps(..., indent=4)`, but for the time which that takes.
        return (
            f'{{\n    "version": {_VERSION},\n    "last_seen_indices": {{\n{seen}\n    }},\n'
            f'    "last_worker_index": {last_worker},{self._names_text}'
        )

    @functools.cached_property
    def _names_text(self) -> str:
        """The end of a state, which is always the same: what it is a state of."""
        loader = self._data_loader
        names = {
            "worker_count": self._workers,
            "sampler": repr(loader._sampler),  # noqa: SLF001
            "data_source": naming.source_name(loader._data_source),  # noqa: SLF001
        }
        return json.dumps(names, indent=4).removeprefix("{")

    def _validate(self, state: Any) -> None:
        """Raise unless the state is one of this loader's."""
        loader = self._data_loader
        if not isinstance(state, dict):
            raise ValueError(f"A state is the JSON of a dict, but got that of {state!r}.")
        self._check_kind(state)
        if loader.has_flat_map:
            return
        if state.get("version", _VERSION) != _VERSION:
            raise ValueError(
                f"The state has version {state['version']}, but this release writes and reads"
                f" version {_VERSION}. Restore it with the release that wrote it."
            )
        if self._places(state) is None or not loader.has_same_order(
            self._workers, state["worker_count"]
        ):
            own_count = loader.multiprocessing_options.num_workers
            raise ValueError(
                "The state was taken with worker_count="
                f"{state['worker_count']}, but this DataLoader has worker_count={own_count}."
                " With these operations the order of the elements depends on it: restore it with"
                " the same number."
            )
        naming.check_same("sampler", state["sampler"], repr(loader._sampler))  # noqa: SLF001
        own = naming.source_name(loader._data_source)  # noqa: SLF001
        naming.check_same("data_source", state["data_source"], own)

    def _check_kind(self, state: dict[str, Any]) -> None:
        """Raise if the state is one of another kind of iterator."""
        of_loader = "last_seen_indices" in state or "worker_count" in state
        if not self._data_loader.has_flat_map:
            if not of_loader:
                raise ValueError(
                    "The state is not one of a DataLoader without a FlatMap, but of a dataset's"
                    f" iterator or of another loader: it has the keys {sorted(state)}."
                )
        elif of_loader:
            raise ValueError(
                "The state was taken from a DataLoader without a FlatMap, but this one has one."
            )
        elif ("iterators_in_use_states" if self._workers else "parent") not in state:
            raise ValueError(
                "The state is not one of a DataLoader with a FlatMap and worker_count="
                f"{self._workers}: it has the keys {sorted(state)}."
            )

    def _go_to(self, state: dict[str, Any]) -> None:
        if self._data_loader.has_flat_map:
            self._iterator.set_state(state)
            return
        places = self._places(state)
        if places is None:
            raise ValueError(f"The state does not say where all of its workers stand: {state}.")
        workers = self._workers
        if len(places) == max(1, workers):
            next_worker = (int(state["last_worker_index"]) + 1) % len(places)
        else:
            # As many elements read in all, by another number of workers.
            read = sum(places)
            next_worker = read % max(1, workers)
            places = [-(-(read - worker) // max(1, workers)) for worker in range(max(1, workers))]
        if not workers:
            self._iterator.set_state({"next_index": places[0]})
            return
        self._iterator.set_state(
            {
                "next_index_in_cycle": next_worker,
                "next_index_in_datasets": workers,
                "iterators_in_use_indices": list(range(workers)),
                "iterators_in_use_states": [{"next_index": place} for place in places],
                "exhausted": [0] * workers,
                "future_states": {},
            }
        )

    def _places(self, state: dict[str, Any]) -> list[int] | None:
        """Return how many places each worker of a state has read; None if it does not say."""
        options = self._data_loader._shard_options  # noqa: SLF001
        count, index = options.shard_count, options.shard_index
        seen, workers = state["last_seen_indices"], max(1, int(state["worker_count"]))
        if any(str(worker) not in seen for worker in range(workers)):
            return None
        stride = workers * count
        return [
            (int(seen[str(worker)]) + stride - index - worker * count) // stride
            for worker in range(workers)
        ]

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Take the state now, and return a coroutine that writes it into `directory`."""
        files = {saving.state_filename(): self._state_text(), **saving.pipeline_file(self)}
        return saving.write_files(files, directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Return a coroutine that reads the state from `directory` and goes there."""
        return saving.read_state(self, directory)

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self._state_text()})"
