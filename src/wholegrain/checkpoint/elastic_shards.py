"""The iterator of an `ElasticIterator` without lanes, as Grain has it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Coroutine, Mapping
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain._core.origins import Origin
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import State
from wholegrain._graph import shares
from wholegrain._graph.dataset import upstream
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.nodes.interleave import InterleaveIterDataset
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset
from wholegrain._graph.provenance import checked_step, no_step, nothing_yet
from wholegrain._graph.run_iterator import Run
from wholegrain._graph.shard_states import interleave_of
from wholegrain._state import files
from wholegrain._state.validate import (
    check_mapping,
    flag_of,
    is_whole_number,
    number_of,
    part_of,
    shortened,
    wrong_state,
)
from wholegrain.options import MultiprocessingOptions, ReadOptions
from wholegrain.sharding import ShardOptions


class ElasticDatasetIterator(DatasetIterator[Any]):
    """A position in an ElasticIterator."""

    def __init__(
        self,
        ds: MapDataset[Any] | IterDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        read_options: ReadOptions,
        multiprocessing_options: MultiprocessingOptions | None,
    ) -> None:
        super().__init__()
        self._ds = self.opened_from = ds
        self._global_batch_size = global_batch_size
        self._shard_options = shard_options
        self._read_options = read_options
        self._multiprocessing_options = multiprocessing_options
        self._global_next_index = 0
        self._iterator: DatasetIterator[Any] | None = None
        self._closed = False
        self._is_map = isinstance(ds, MapDataset)
        self._is_redistributed = False
        if isinstance(ds, MapDataset):
            if ds.sparse:
                raise ValueError(
                    "`ElasticIterator` cannot count elements after a `filter` or a flat map on a"
                    " MapDataset: some of them are missing. Filter the stored data instead."
                )
        else:
            self._check_iter_dataset(ds)

    def _check_iter_dataset(self, ds: IterDataset[Any]) -> None:
        if self._multiprocessing_options is not None:
            raise NotImplementedError(
                "`ElasticIterator` over an IterDataset runs without worker processes."
            )
        for node in upstream(ds):
            if isinstance(node, PrefetchIterDataset):
                raise ValueError(
                    f"`ElasticIterator` cannot redistribute {node} over other processes. It needs"
                    " an `InterleaveIterDataset` over files or datasets, or `lanes`."
                )
        shares.check_can_shard(_interleaved(ds), 2, False)

    @property
    def shard_options(self) -> ShardOptions:
        """The shard of this process."""
        return self._shard_options

    @property
    def base_iterator(self) -> DatasetIterator[Any]:
        """The iterator of this shard's batches, created on first use."""
        if self._iterator is None:
            if self._closed:
                raise closed_error()
            self._iterator = self._shard().__iter__()
        return self._iterator

    @property
    def any_state_fits(self) -> bool:
        """Whether the state of any process restores this one."""
        return self._is_map

    @property
    def has_shard_states(self) -> bool:
        """Whether the state of each dataset is saved separately."""
        return not self._is_map

    def _batch_size(self) -> int:
        size, rest = divmod(self._global_batch_size, self._shard_options.shard_count)
        if rest:
            raise ValueError(
                "`global_batch_size` has to be a multiple of the number of shards, but"
                f" {self._global_batch_size} is not one of {self._shard_options.shard_count}."
            )
        if size < 0 or (self._is_map and not size):
            raise ValueError(
                f"`global_batch_size` has to be at least 1, but got {self._global_batch_size}."
            )
        return size

    def _shard(self) -> IterDataset[Any]:
        size, options = self._batch_size(), self._shard_options
        if isinstance(self._ds, MapDataset):
            ds = self._batches(self._ds, self._global_next_index)
            if self._multiprocessing_options is not None:
                ds = ds.mp_prefetch(self._multiprocessing_options)
            return ds
        whole = _interleaved(self._ds)
        share = shares.shard(whole, options.shard_index, options.shard_count, False)
        return share.batch(size) if size else share

    def _batches(self, ds: MapDataset[Any], first: int) -> IterDataset[Any]:
        """Return this shard's batches, from a position of all shards on."""
        options = self._shard_options
        part = ds[first + options.shard_index :: options.shard_count]
        batches = part.batch(self._batch_size(), drop_remainder=True)
        return batches.to_iter_dataset(self._read_options)

    # Steps.

    def _whole_run(self, method: str) -> Any:
        raise TypeError(
            f"`{method}` of an `ElasticIterator` needs `lanes`, because without them the rows of a"
            " process depend on the number of processes."
        )

    def provenance(self, step: int | None = None) -> list[Origin]:
        if not isinstance(self._ds, MapDataset):
            self._check_steps_are_known(step)
            return self.base_iterator.provenance(step)
        size = self._global_batch_size
        if step is None:
            first = self._global_next_index - size
            if first < 0:
                raise nothing_yet()
        else:
            first = checked_step(step) * size
        # Only positions count: what other numbers of processes have read before does not matter.
        step, offset = divmod(first, size)
        run: Run[Any] = Run(self._batches(self._ds, offset))
        with contextlib.closing(run):
            return run.provenance(step)

    def seek(self, step: int) -> None:
        if not isinstance(self._ds, MapDataset):
            self._check_steps_are_known(step)
            self.base_iterator.seek(step)
            return
        step = checked_step(step)
        total = len(self._batches(self._ds, 0).parents[0])
        if step > total:
            raise no_step(step, total)
        self.set_state({"global_next_index": step * self._global_batch_size})

    def _check_steps_are_known(self, step: int | None) -> None:
        if step is not None and self._is_redistributed:
            raise ValueError(
                "The datasets of this process were read by another number of processes before, so"
                " earlier steps are not known here. `lanes` makes them independent of that number."
            )

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __next__(self) -> Any:
        position = self._global_next_index
        try:
            if self._closed:
                raise closed_error()
            if not self._is_map:
                return next(self.base_iterator)
            element = next(self.base_iterator)
            self._global_next_index = position + self._global_batch_size
            return element
        except BaseException as error:
            if is_interruption(error) and self._is_map:
                # The element was not returned, so the position does not include it.
                self._global_next_index = position
                self._drop_iterator()
            keep_user_frames(error)
            raise

    def start_prefetch(self) -> None:
        self.base_iterator.start_prefetch()

    def get_state(self) -> State:
        if self._is_map:
            return {"global_next_index": self._global_next_index}
        return self.base_iterator.get_state()

    def set_state(self, state: State) -> None:
        # Do nothing after the position has changed: an interruption there could not undo it.
        if self._is_map:
            position = number_of(state, "global_next_index", self)
            self._drop_iterator()
            self._global_next_index = position
        else:
            self.base_iterator.set_state(state)

    def get_shard_states(self) -> dict[int, State]:
        """Return the state of each of this shard's datasets, by its number among all datasets."""
        ask, run = self._interleave().get_shard_states, self._iterator
        states = run.ask(ask) if isinstance(run, Run) else ask()
        return {self._global_number(number): state for number, state in enumerate(states)}

    def set_shard_states(self, shard_states: Mapping[Any, State]) -> None:
        """Go to the position at which each of this shard's datasets has the given state."""
        interleave = self._interleave()
        ordered = [shard_states[key] for key in _sorted_numbers(shard_states)]
        for shard in ordered:
            flag_of(shard, "exhausted", self)
            part_of(shard, "state", self)
        count = len(self.get_shard_states())
        if len(ordered) != count:
            raise ValueError(
                f"There are states of {len(ordered)} datasets, but this shard has {count}. Were"
                " they taken from other files or by another shard?"
            )
        move = functools.partial(interleave.set_shard_states, ordered)
        if isinstance(self._iterator, Run):
            self._iterator.move_stage(move)
        else:
            move()
        self._is_redistributed = True

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        return files.save_later(self, directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        return files.restore_later(self, directory)

    def _global_number(self, number: int) -> int:
        return number * self._shard_options.shard_count + self._shard_options.shard_index

    def _interleave(self) -> Any:
        if self._is_map:
            raise NotImplementedError(
                "An `ElasticIterator` over a MapDataset has one position for all shards, not one"
                " for each dataset."
            )
        iterator: Any = self.base_iterator
        if isinstance(iterator, Run):
            iterator.mend()
            (iterator,) = iterator._parents  # noqa: SLF001
        return interleave_of(iterator)

    def _drop_iterator(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator.close()

    def close(self) -> None:
        self._closed = True
        if self._is_map:
            self._drop_iterator()
        elif self._iterator is not None:
            self._iterator.close()


def _sorted_numbers(shard_states: Any) -> list[Any]:
    """Return the keys of the states of single datasets, sorted as numbers."""
    owner = "ElasticIterator"
    keys: list[Any] = list(check_mapping(shard_states, owner))
    for key in keys:
        if not is_whole_number(key) and not (isinstance(key, str) and key.isdecimal()):
            raise wrong_state(owner, f"a dataset has the number {shortened(key)}")
    return sorted(keys, key=int)


def _interleaved(ds: Any) -> Any:
    """Return the pipeline with each file of a source as a dataset of its own."""
    if hasattr(ds, "interleaved"):
        return ds.interleaved()
    if not ds.parents or isinstance(ds, InterleaveIterDataset):
        return ds
    return ds.with_parents([_interleaved(parent) for parent in ds.parents])
