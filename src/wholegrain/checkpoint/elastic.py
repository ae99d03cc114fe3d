"""An iterator whose checkpoint can be restored by another number of processes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from wholegrain._core.origins import Origin
from wholegrain._core.tolerated import FailedRecord
from wholegrain._core.types import State
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.map_dataset import MapDataset
from wholegrain.checkpoint.elastic_lanes import ElasticLanesIterator
from wholegrain.checkpoint.elastic_shards import ElasticDatasetIterator
from wholegrain.options import MultiprocessingOptions, ReadOptions
from wholegrain.sharding import ShardOptions

_Iterator: TypeAlias = ElasticLanesIterator | ElasticDatasetIterator


class ElasticIterator(IterDataset[Any]):
    """Batches of this process's shard, from a position that all shards share.

    It takes a dataset that is neither sharded nor batched, and does both itself. Its state is the
    number of elements that all shards have read together, so it fits any number of shards: after a
    restore, exactly the elements follow that had not been read.

    An IterDataset has to consist of several files or datasets. Each process reads its share of
    them, their states are saved one by one, and they are redistributed when the number of processes
    changes.

    With `lanes`, the pipeline may be any MapDataset or IterDataset. Each process has the same
    number of lanes, and a step takes the same number of elements from each lane. So the batches of
    all processes, one after the other, are the same global batch for any number of processes and
    workers. A state has the state of each lane. `for batch in elastic` is an epoch; the next loop
    is the next epoch, with other shuffles and random numbers. All processes end after the same
    step.

    It is a dataset with a single iterator: `next(elastic)` and `elastic.get_state()` are those of
    `iter(elastic)`, and transformations read from that iterator.

    Args:
        ds: A MapDataset without filters, or an IterDataset over an `InterleaveIterDataset` or
            several Parquet files. With `lanes`, any dataset.
        global_batch_size: How many elements all shards together read in one step.
        shard_options: The shard of this process.
        read_options: How far to read ahead, and with how many threads.
        multiprocessing_options: If given, worker processes run the pipeline.
        lanes: Into how many lanes to divide the pipeline. It has to be a multiple of the number of
            shards, and `global_batch_size` a multiple of it.
        steps: With `lanes`: how many steps an epoch has. By default that follows from the length of
            the pipeline. If the length is not known, as after a filter, "count" reads the pipeline
            once to count its elements. If the pipeline has no end, an epoch of so many steps
            begins where the one before it has ended.
        remainder: With `lanes`: "drop" ends an epoch after the last step that all lanes can fill.
            "pad" ends it when all lanes have ended, repeats rows where elements are missing, and
            adds a boolean array that is false there: under the key "mask" if elements are dicts,
            else batches are pairs of the batch and the mask.
        count_cache: A folder to keep what "count" has counted, for later runs of this pipeline. Its
            files do not notice if data files or imported code change: delete them then.
    """

    def __init__(
        self,
        ds: MapDataset[Any] | IterDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        *,
        read_options: ReadOptions = ReadOptions(),  # noqa: B008  (never changed)
        multiprocessing_options: MultiprocessingOptions | None = None,
        lanes: int | None = None,
        steps: int | Literal["count"] | None = None,
        remainder: Literal["drop", "pad"] = "drop",
        count_cache: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._closed = False
        arguments = (ds, global_batch_size, shard_options, read_options, multiprocessing_options)
        if lanes is not None:
            self._open: Callable[[], _Iterator] = functools.partial(
                ElasticLanesIterator, *arguments, lanes, steps, remainder, count_cache
            )
        elif steps is not None or count_cache is not None or remainder != "drop":
            raise ValueError("`steps`, `remainder` and `count_cache` need `lanes`.")
        else:
            self._open = functools.partial(ElasticDatasetIterator, *arguments)
        self._iterator: _Iterator = self._open()

    def __iter__(self) -> DatasetIterator[Any]:
        if self._iterator.is_closed and not self._closed:
            # A pipeline that reads from it has closed it, and is opened again.
            self._iterator = self._open()
        if isinstance(self._iterator, ElasticLanesIterator):
            self._iterator.begin_epoch()
        return self._iterator

    def __next__(self) -> Any:
        return next(self._iterator)

    def get_state(self) -> State:
        """Return the position after the last element that `next` returned."""
        return self._iterator.get_state()

    def set_state(self, state: State) -> None:
        """Go to a position that `get_state` returned, in this or another run."""
        self._iterator.set_state(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the position as PyTorch's programs save it: a dict with text in it."""
        return self._iterator.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a position that `state_dict` returned, in this or another run."""
        self._iterator.load_state_dict(state_dict)

    def errors(self) -> list[FailedRecord]:
        """Return the failures that `on_error` has tolerated in this process, in their order."""
        return self._iterator.errors()

    def provenance(self, step: int | None = None) -> list[Origin]:
        """Return which records the rows of this process come from; see `DatasetIterator`.

        Args:
            step: The step, with `lanes` of the current epoch; by default the last one.
        """
        return self._iterator.provenance(step)

    def seek(self, step: int) -> None:
        """Go to a step; with `lanes`, to one of the current epoch."""
        self._iterator.seek(step)

    def skip(self, steps: range) -> None:
        """With `lanes`: leave steps of the current epoch out. All processes have to do so."""
        self._iterator.skip(steps)

    def digest(self) -> str:
        """With `lanes`: return a digest of all rows of this process since the first call.

        `checkpoint.merge_digests` merges those of all processes. The result is the same for any
        number of processes and workers.
        """
        return self._iterator.digest()

    def set_weights(self, weights: Mapping[str, float] | None, at_step: int | None = None) -> int:
        """With `lanes`: change the weights of the mixture; see `DatasetIterator.set_weights`.

        They hold until the epoch ends. With several processes, all of them have to give the same
        `at_step`.
        """
        return self._iterator.set_weights(weights, at_step)

    def start_prefetch(self) -> None:
        """Start reading ahead before the first element is requested."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stop threads and processes. `next` is an error afterwards."""
        self._closed = True
        self._iterator.close()

    def get_shard_states(self) -> dict[int, State]:
        """Return the state of each of this shard's datasets, by its number among all datasets."""
        return self._iterator.get_shard_states()

    def set_shard_states(self, shard_states: Mapping[Any, State]) -> None:
        """Go to the position at which each of this shard's datasets has the given state."""
        self._iterator.set_shard_states(shard_states)

    @property
    def shard_options(self) -> ShardOptions:
        """The shard of this process."""
        return self._iterator.shard_options

    @property
    def base_iterator(self) -> DatasetIterator[Any]:
        """The iterator of this shard's batches, created on first use."""
        return self._iterator.base_iterator

    @property
    def any_state_fits(self) -> bool:
        """Whether the state of any process restores this one."""
        return self._iterator.any_state_fits

    @property
    def has_shard_states(self) -> bool:
        """Whether the state of each dataset is saved separately."""
        return self._iterator.has_shard_states

    @property
    def has_lane_states(self) -> bool:
        """Whether the state has the state of each lane."""
        return isinstance(self._iterator, ElasticLanesIterator)

    @property
    def opened_from(self) -> Any:
        """The dataset that it iterates over, which checkpoints describe."""
        return self._iterator.opened_from

    @property
    def epoch(self) -> int:
        """With `lanes`: the number of the epoch, from 0."""
        return self._lanes.epoch

    @property
    def has_epochs(self) -> bool:
        """Whether it has `lanes`, and epochs that end."""
        return isinstance(self._iterator, ElasticLanesIterator) and self._iterator.has_epochs

    def set_epoch(self, epoch: int) -> None:
        """With `lanes`: go to the start of an epoch of a pipeline that ends."""
        self._lanes.set_epoch(epoch)

    @property
    def step_in_epoch(self) -> int:
        """With `lanes`: how many steps of the epoch were taken."""
        return self._lanes.step_in_epoch

    @property
    def steps_per_epoch(self) -> int | None:
        """With `lanes`: how many steps the epoch has; None if unknown, or if there is no end."""
        return self._lanes.steps_per_epoch

    @property
    def lanes(self) -> int:
        """With `lanes`: how many lanes there are."""
        return self._lanes.lanes

    @property
    def owned(self) -> range:
        """With `lanes`: the lanes of this process."""
        return self._lanes.owned

    def fits(self, state: State) -> bool:
        """Return whether a state has all that this process needs.

        Raises:
            ValueError: If no process of this job could have saved it.
        """
        it = self._iterator
        return not isinstance(it, ElasticLanesIterator) or it.fits(state)

    def merged(self, states: Sequence[State]) -> State:
        """With `lanes`: merge states that some of the processes have saved."""
        return self._lanes.merged(states)

    @property
    def _lanes(self) -> ElasticLanesIterator:
        if not isinstance(self._iterator, ElasticLanesIterator):
            raise AttributeError("This `ElasticIterator` has no lanes: give it `lanes`.")
        return self._iterator

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Take the state now, and return a coroutine that writes it into `directory`."""
        return await self._iterator.save(directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Return a coroutine that reads the state from `directory` and goes there."""
        return await self._iterator.load(directory)
