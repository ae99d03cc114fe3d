"""DataLoader: a pipeline of a source, a sampler and operations."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from wholegrain import transforms
from wholegrain._core.interruption import is_interruption
from wholegrain._core.whole_number import whole_count
from wholegrain._graph.given_sources import no_records_error
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.nodes.batch import check_batch_size
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset
from wholegrain._graph.user_functions import refuse_class
from wholegrain._loader.iterator import DataLoaderIterator
from wholegrain._loader.legacy import BatchOperation, Operation
from wholegrain._loader.operations import (
    DataIterDataset,
    OperationIterDataset,
    need_no_metadata,
)
from wholegrain._loader.records import SampledMapDataset, count_places
from wholegrain._observe import outline
from wholegrain._state import counting
from wholegrain.options import MultiprocessingOptions, ReadOptions
from wholegrain.samplers import IndexSampler, Sampler, SequentialSampler
from wholegrain.sharding import NoSharding, ShardOptions, check_shard_options

_MOST_SHOWN = 4  # How many operations the repr of a loader shows.


class DataLoader:
    """Reads records from a source in the order of a sampler, and applies operations to them.

    Each `iter(loader)` starts at the beginning, independently of other iterators.

    Args:
        data_source: Any object with `__len__` and `__getitem__`.
        sampler: Which records to read, and in which order.
        operations: Transformations, applied in this order.
        worker_count: The number of processes that run the pipeline. 0 runs it in this process,
            and None in as many as there are processors. "auto" chooses the number while the
            pipeline runs; its elements, order and states are those of 0.
        worker_buffer_size: How many finished elements each worker may hold.
        shard_options: Which shard this is; by default the sampler's.
        read_options: How far each process reads ahead, and with how many threads.
        enable_profiling: Accepted for programs that set it; has no effect.
        worker_backend: What starts the workers; see `MultiprocessingOptions.backend`.

    Example:
        >>> loader = DataLoader(
        ...     data_source=source,
        ...     sampler=IndexSampler(len(source), shuffle=True, num_epochs=1, seed=0),
        ...     operations=[Decode(), Batch(32)],
        ... )
        >>> for batch in loader:
        ...     print(batch)
    """

    def __init__(
        self,
        *,
        data_source: Any,
        sampler: Sampler,
        operations: Sequence[transforms.Transformation | Operation] = (),
        worker_count: int | Literal["auto"] | None = 0,
        worker_buffer_size: int | Literal["auto"] = 1,
        shard_options: ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        enable_profiling: bool = False,
        worker_backend: Any = None,
    ) -> None:
        num_workers = _determine_worker_count(worker_count)
        _check_buffer_size(worker_buffer_size, num_workers)
        _check_kinds(data_source, sampler, operations, read_options)
        self._data_source = data_source
        self._sampler = sampler
        self._shard_options = _shard_options(shard_options, sampler)
        self._operations = list(operations)
        self._read_options = read_options or ReadOptions()
        self._multiprocessing_options = MultiprocessingOptions(
            num_workers=num_workers,
            per_worker_buffer_size=worker_buffer_size,
            enable_profiling=enable_profiling,
            backend=worker_backend,
        )
        _check_operations(self._operations)
        _warn_if_longer(sampler, data_source)
        self._dataset = self._pipeline()
        self._latest: weakref.ref[DataLoaderIterator] | None = None
        self._loaded: dict[str, Any] | None = None

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """The number of workers, and how many finished elements each may hold."""
        return self._multiprocessing_options

    @property
    def has_flat_map(self) -> bool:
        """Whether one record may become several elements."""
        return any(isinstance(operation, transforms.FlatMap) for operation in self._operations)

    def has_same_order(self, num_workers: int, saved_workers: int) -> bool:
        """Return whether two numbers of workers yield the same elements in the same order."""
        return (
            num_workers == saved_workers
            or self._is_one_to_one
            or (num_workers <= 1 and saved_workers <= 1)
        )

    def _pipeline(self) -> IterDataset[Any]:
        options = self._shard_options
        bare = need_no_metadata(self._operations)
        records = SampledMapDataset(
            self._data_source, self._sampler, options, count_places(self._sampler), bare
        )
        ds: IterDataset[Any] = PrefetchIterDataset(records, self._read_options, allow_nones=True)
        for operation in self._operations:
            ds = OperationIterDataset(ds, operation, options.shard_count, bare)
        ds = DataIterDataset(ds, bare)
        self._is_one_to_one = counting.is_one_to_one(ds)
        if self._multiprocessing_options.num_workers:
            ds = ds.mp_prefetch(self._multiprocessing_options)
        return ds

    def __repr__(self) -> str:
        names = [outline.function_name(operation) for operation in self._operations]
        if len(names) > _MOST_SHOWN:
            names = [*names[:_MOST_SHOWN], "..."]
        return (
            f"DataLoader({type(self._data_source).__name__}, {type(self._sampler).__name__},"
            f" operations=[{', '.join(names)}],"
            f" worker_count={self._multiprocessing_options.num_workers!r})"
        )

    def __iter__(self) -> DataLoaderIterator:
        _check_random_maps(self._operations, self._sampler)
        iterator = DataLoaderIterator(self, None)
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            iterator.load_state_dict(loaded)
        self._latest = weakref.ref(iterator)
        return iterator

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest `iter(loader)`, as PyTorch's programs save it."""
        if self._loaded is not None:
            return self._loaded
        if self._latest is None:
            return DataLoaderIterator(self, None).state_dict()
        latest = self._latest()
        if latest is None:
            raise RuntimeError(
                "The iterator whose position `state_dict` returns does not exist anymore. Call it"
                " in the loop, or keep the iterator: `it = iter(loader)`, then `it.state_dict()`."
            )
        return latest.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next `iter(loader)` start at a position that `state_dict` returned."""
        DataLoaderIterator(self, None).check_state_dict(state_dict)
        self._loaded = dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_latest": None}  # An iterator belongs to its process.


def _check_kinds(source: Any, sampler: Any, operations: Any, read_options: Any) -> None:
    if not hasattr(source, "__getitem__"):
        raise no_records_error("`data_source`", source)
    if not hasattr(sampler, "__getitem__"):
        raise TypeError(
            "`sampler` has to define the order of the records, as"
            f" `IndexSampler(num_records=len(source))` does, but got {sampler!r}."
        )
    if not isinstance(operations, Iterable):
        raise TypeError(
            f"`operations` has to be a list, but got {operations!r}. Put it in brackets."
        )
    if not (read_options is None or hasattr(read_options, "prefetch_buffer_size")):
        raise TypeError(
            "`read_options` has to be something like `ReadOptions(num_threads=4)`, but got"
            f" {read_options!r}."
        )


def _determine_worker_count(input_worker_count: Any) -> int | Literal["auto"]:
    if input_worker_count == "auto":
        return "auto"
    if input_worker_count is None:
        processors = os.cpu_count()
        if processors is None:
            raise ValueError(
                "`worker_count=None` means the number of processors, which this system does"
                " not report. Pass a number."
            )
        return processors
    count = int(whole_count("worker_count", input_worker_count))
    if count < 0:
        raise ValueError(
            f"`worker_count` cannot be negative, but got {count}. 0 runs in this process."
        )
    return count


def _check_buffer_size(size: int | Literal["auto"], num_workers: int | Literal["auto"]) -> None:
    if size == "auto":
        return
    size = whole_count("worker_buffer_size", size)
    if size < 0 or (size == 0 and num_workers):
        raise ValueError(
            f"`worker_buffer_size` has to be at least 1 with {num_workers} workers, but got {size}."
        )


def _shard_options(given: ShardOptions | None, sampler: Any) -> ShardOptions:
    if given is not None:
        return check_shard_options(given)
    options = getattr(sampler, "_shard_options", None)
    if not isinstance(options, ShardOptions):
        raise ValueError(
            f"{type(sampler).__name__} does not define which shard this is. Pass"
            " `shard_options=NoSharding()`, or the options of this process, to the DataLoader."
        )
    return options


def _check_operations(operations: Sequence[Any]) -> None:
    grouped: str | None = None
    for operation in operations:
        refuse_class(operation, "operations")
        if not callable(operation) and not isinstance(operation, transforms.Transformation):
            raise TypeError(
                "An operation has to be a transformation of `wholegrain.transforms`, or callable,"
                f" but got {operation!r}."
            )
        if isinstance(operation, transforms.Batch):
            check_batch_size(operation.batch_size)
        if isinstance(operation, transforms.MapWithIndex) and grouped:
            raise ValueError(
                f"`MapWithIndex` cannot follow {grouped} in a DataLoader, because its elements have"
                " no index of their own. Put `MapWithIndex` first."
            )
        if isinstance(operation, (transforms.Batch, transforms.FlatMap, BatchOperation)):
            grouped = f"`{type(operation).__name__}`"


def _check_random_maps(operations: Sequence[Any], sampler: Any) -> None:
    """Raise for random maps that would have no random generator."""
    seedless = isinstance(sampler, (IndexSampler, SequentialSampler)) and sampler.seed is None
    after_flat_map = False
    for operation in operations:
        if isinstance(operation, (transforms.RandomMap, transforms.TfRandomMap)):
            if seedless:
                raise ValueError(
                    "RandomMap needs a sampler with a seed: pass `seed=...` to the sampler."
                )
            if after_flat_map:
                raise ValueError(
                    "RandomMap after FlatMap has no per-record generator. Put it before the"
                    " FlatMap."
                )
        after_flat_map = after_flat_map or isinstance(operation, transforms.FlatMap)


def _warn_if_longer(sampler: Any, source: Any) -> None:
    if not isinstance(sampler, (IndexSampler, SequentialSampler)):
        return
    try:
        length = len(source)
    except Exception as error:  # Reading will raise a better error.
        if is_interruption(error):
            raise
        return
    if length and sampler.num_records > length:
        warnings.warn(
            f"The sampler has num_records={sampler.num_records}, but len(source)={length}. Indices"
            " wrap around, so some records are read more than once per epoch.",
            stacklevel=3,
        )


def load(
    source: Any,
    *,
    num_epochs: int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    shard_options: ShardOptions = NoSharding(),  # noqa: B008  (immutable)
    transformations: transforms.Transformations = (),
    batch_size: int | None = None,
    drop_remainder: bool = False,
    worker_count: int | Literal["auto"] | None = 0,
    read_options: ReadOptions | None = None,
) -> DataLoader:
    """Create a DataLoader with an IndexSampler in one call.

    Args:
        source: Any object with `__len__` and `__getitem__`.
        num_epochs: How often all records are read; infinitely often by default.
        shuffle: Whether the order is random.
        seed: The seed of the order and of random maps; required for `shuffle`.
        shard_options: Which shard this is.
        transformations: Applied in this order.
        batch_size: If given, the elements are batched at the end.
        drop_remainder: Whether to drop a short last batch.
        worker_count: The number of processes that run the pipeline, or "auto".
        read_options: How far each process reads ahead, and with how many threads.
    """
    sampler = IndexSampler(
        num_records=len(source),
        shard_options=shard_options,
        shuffle=shuffle,
        num_epochs=num_epochs,
        seed=seed,
    )
    operations: list[Any] = list(transformations)
    if batch_size is not None:
        operations.append(transforms.Batch(batch_size=batch_size, drop_remainder=drop_remainder))
    return DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=worker_count,
        read_options=read_options,
    )
