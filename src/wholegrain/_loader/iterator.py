"""DataLoaderIterator: a position in a DataLoader, with a state in bytes."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Self

from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import State
from wholegrain._graph.asked import HasStep
from wholegrain._graph.auto_prefetch import set_worker_count
from wholegrain._loader import naming
from wholegrain._state import files, state_dicts
from wholegrain._state.steered import STEERED, is_steered
from wholegrain._state.validate import (
    WrongStateError,
    check_mapping,
    index_of,
    is_whole_number,
    number_of,
    part_of,
    shortened,
    wrong_state,
)
from wholegrain._state.workers import counts_in_turn, in_turn

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from wholegrain._loader.data_loader import DataLoader
    from wholegrain._observe.report import Report

_VERSION = 2


class DataLoaderIterator(HasStep):
    """A position in a DataLoader that moves with `next`, and can be saved and restored.

    Args:
        data_loader: The DataLoader to read from.
        state: The position to start at, as `json.loads` of what `get_state` returned; None for the
            beginning.
        validate_state: Whether the state has to be from a loader with the same sampler and source.
    """

    def __init__(
        self, data_loader: DataLoader, state: dict[str, Any] | None, validate_state: bool = True
    ) -> None:
        self._data_loader = data_loader
        self._iterator = data_loader._dataset.__iter__()  # noqa: SLF001
        metrics: list[Any] | None = getattr(
            self._iterator._parent,  # noqa: SLF001
            "metrics",
            None,
        )
        if metrics:  # Only if the user has enabled them.
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
        except BaseException as error:
            keep_user_frames(error)
            raise

    def start_prefetch(self) -> None:
        """Start reading, or the workers, before the first element is requested."""
        self._iterator.start_prefetch()

    @property
    def opened_from(self) -> Any:
        """The pipeline that the DataLoader has built."""
        return self._data_loader._dataset  # noqa: SLF001

    def set_worker_count(self, count: int | None) -> None:
        """Set the number of workers from now on; None chooses it automatically again.

        Needs `worker_count="auto"`. The elements, their order and the states do not change.
        """
        set_worker_count(self._iterator, count)

    def report(self) -> Report:
        """Report what is slow in this pipeline, and why; see `DatasetIterator.report`."""
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
        """Return the position after the last element that `next` returned."""
        return self._state_text().encode()

    def set_state(self, state: bytes | bytearray | str | dict[str, Any]) -> None:
        """Go to a position that `get_state` returned, in this or another run."""
        decoded = _decoded(state)
        self._validate(decoded)
        self._go_to(decoded)

    def state_dict(self) -> dict[str, Any]:
        """Return the position as PyTorch's programs save it: a dict with text in it."""
        return state_dicts.to_state_dict(self._state_text())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a position that `state_dict` returned, in this or another run."""
        self.set_state(state_dicts.of_state_dict(state_dict))

    def check_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raise unless `state_dict` belongs to this loader; do not move."""
        self._validate(_decoded(state_dicts.of_state_dict(state_dict)))

    def _whole_run(self, method: str) -> Any:
        return self._iterator

    def _state_text(self) -> str:
        state, about = self._iterator.get_state(), {}
        if is_steered(state):  # Steps are skipped, or elements digested.
            about, state = {STEERED: state[STEERED]}, state["parent"]
        if not self._data_loader.has_flat_map:
            state = self._as_last_seen(state)
        return json.dumps(state | about, indent=4)

    @property
    def _workers(self) -> int:
        """The number of workers that the order and the states depend on."""
        workers = self._data_loader.multiprocessing_options.num_workers
        return 0 if workers == "auto" else workers

    def _as_last_seen(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the same position as the sampler index that each worker saw last."""
        options = self._data_loader._shard_options  # noqa: SLF001
        count, workers = options.shard_count, self._workers
        if workers:
            positions = [worker["next_index"] for worker in state["iterators_in_use_states"]]
            last_worker = state["next_index_in_cycle"] - 1
        else:
            positions, last_worker = [state["next_index"]], -1
        stride = len(positions) * count
        seen = {
            str(worker): (position - 1) * stride + worker * count + options.shard_index
            for worker, position in enumerate(positions)
        }
        return {
            "version": _VERSION,
            "last_seen_indices": seen,
            "last_worker_index": last_worker,
            **self._names,
        }

    @functools.cached_property
    def _names(self) -> dict[str, Any]:
        """The constant end of a state: which loader it belongs to."""
        loader = self._data_loader
        return {
            "worker_count": self._workers,
            "sampler": repr(loader._sampler),  # noqa: SLF001
            "data_source": naming.source_name(loader._data_source),  # noqa: SLF001
        }

    def _validate(self, state: Any) -> None:
        """Raise unless the state belongs to this loader."""
        loader = self._data_loader
        if not isinstance(state, dict):
            raise WrongStateError(
                f"A state has to be the JSON of a dict, but it is that of {shortened(state)}."
            )
        self._check_kind(state)
        if loader.has_flat_map:
            return
        version = state.get("version", _VERSION)
        if not is_whole_number(version) or version != _VERSION:
            raise WrongStateError(
                f"The state has version {shortened(version)}, but this release writes and reads"
                f" version {_VERSION}. Restore it with the release that wrote it."
            )
        saved_count = number_of(state, "worker_count", self)
        if not loader.has_same_order(self._workers, saved_count):
            own_count = loader.multiprocessing_options.num_workers
            raise WrongStateError(
                f"The state was taken with worker_count={saved_count}, but this DataLoader has"
                f" worker_count={own_count}. With these operations the order of the elements"
                " depends on it: restore it with the same number."
            )
        sampler, source = loader._sampler, loader._data_source  # noqa: SLF001
        naming.check_same("sampler", part_of(state, "sampler", self), repr(sampler))
        own = naming.source_name(source)
        naming.check_same("data_source", part_of(state, "data_source", self), own)

    def _check_kind(self, state: dict[str, Any]) -> None:
        """Raise if the state belongs to another kind of iterator."""
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
        found = self._of_dataset({key: state[key] for key in state if key != STEERED})
        if is_steered(state):
            found = {STEERED: state[STEERED], "parent": found}
        # Do nothing after this: the iterator could not undo its move after an interruption here.
        self._iterator.set_state(found)

    def _of_dataset(self, state: dict[str, Any]) -> State:
        """Return the same position as a state of the dataset's iterator."""
        if self._data_loader.has_flat_map:
            return state
        positions = self._positions(state)
        workers = self._workers
        last_worker = index_of(state, "last_worker_index", self)
        if not -1 <= last_worker < len(positions):
            raise wrong_state(
                self, f"worker {shortened(last_worker)} was the last of {len(positions)} workers"
            )
        if len(positions) == max(1, workers):
            next_worker = (last_worker + 1) % len(positions)
        else:
            # The same number of elements in all, distributed over another number of workers.
            read = sum(positions)
            next_worker = read % max(1, workers)
            positions = counts_in_turn(read, max(1, workers))
        if not workers:
            return {"next_index": positions[0]}
        return in_turn([{"next_index": position} for position in positions], next_worker)

    def _positions(self, state: dict[str, Any]) -> list[int]:
        """Return how many elements each worker of a state has read."""
        options = self._data_loader._shard_options  # noqa: SLF001
        count, index = options.shard_count, options.shard_index
        workers = max(1, number_of(state, "worker_count", self))
        seen = check_mapping(part_of(state, "last_seen_indices", self), self)
        if any(str(worker) not in seen for worker in range(workers)):
            raise wrong_state(
                self,
                f"it was taken with worker_count={state['worker_count']}, but it lacks the position"
                f" of some of these workers: {shortened(seen)}",
            )
        stride = workers * count
        positions = []
        for worker in range(workers):
            first = index + worker * count
            position, rest = divmod(index_of(seen, str(worker), self) + stride - first, stride)
            if rest:
                raise wrong_state(
                    self,
                    f"worker {worker} cannot have seen the record at {seen[str(worker)]}: with"
                    f" worker_count={workers} and {options} it sees record {first}, and then every"
                    f" {stride}th one",
                )
            positions.append(position)
        return positions

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Take the state now, and return a coroutine that writes it into `directory`."""
        return files.save_later(self, directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Return a coroutine that reads the state from `directory` and goes there."""
        return files.restore_later(self, directory)

    def __repr__(self) -> str:
        return f"<DataLoaderIterator of {self._data_loader!r}>"

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self._state_text()})"


def _decoded(state: bytes | bytearray | str | dict[str, Any]) -> Any:
    """Return the content of the text of a state."""
    if isinstance(state, dict):
        return state
    expected = "A DataLoader's state is the text that `get_state` returned, in JSON"
    try:
        text = state if isinstance(state, str) else bytes(state).decode()
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"{expected}, but got {shortened(state)}: {error.msg}"
        raise json.JSONDecodeError(problem, error.doc, error.pos) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise WrongStateError(f"{expected}, but got {shortened(state)}: {error}.") from error
