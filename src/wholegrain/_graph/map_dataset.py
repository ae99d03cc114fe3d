"""MapDataset: elements by index."""

from __future__ import annotations

import abc
import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    overload,
)

import numpy as np

from wholegrain._core.stack import Empty
from wholegrain._core.tolerated import raising
from wholegrain._core.types import (
    Filters,
    Indices,
    K,
    Leaf,
    LeafT,
    Maps,
    MapsAtRandom,
    MapsWithIndex,
    NDArray,
    T,
    T_co,
)
from wholegrain._graph import hints, nodes
from wholegrain._graph.chunks import read_bulk, read_singly
from wholegrain._graph.dataset import Dataset, R
from wholegrain._graph.error_rules import tolerates
from wholegrain._graph.map_steering import MapSteering
from wholegrain.options import ReadOptions

if TYPE_CHECKING:
    from wholegrain import transforms
    from wholegrain._graph.iter_dataset import IterDataset
    from wholegrain._graph.iterator import DatasetIterator
    from wholegrain._graph.tracing import Tracer
    from wholegrain.schedule import Schedule
    from wholegrain.sharding import ShardOptions

_ENDLESS = 2**48
"""More elements than a run can read: part of an infinite dataset, such as every third element."""


class Source(Protocol[T_co]):
    """What `MapDataset.source` reads from: any object with a length and integer indices."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __getitem__(self, index: int, /) -> T_co:
        """Return the record at `index`, from 0 to the length minus 1."""


class _MapDatasetFactories(abc.ABCMeta):
    """The constructors of a MapDataset. They belong to the class, not to its instances."""

    def source(cls, source: Source[T]) -> MapDataset[T]:
        """Create a dataset of the elements of `source`.

        Args:
            source: Any object with `__len__` and an integer `__getitem__`. Several threads may
                read it at once. If it defines `__getitems__(indices)`, many elements are read in
                one call.
        """
        return nodes.SourceMapDataset(source)

    def range(cls, start: int, stop: int | None = None, step: int = 1) -> MapDataset[int]:
        """Create a dataset of the integers of Python's `range`."""
        return nodes.RangeMapDataset(start, stop, step)

    def mix(
        cls,
        datasets: Sequence[MapDataset[T]] | Mapping[str, MapDataset[T]],
        weights: Sequence[float] | Mapping[str, float] | Schedule | None = None,
        *,
        stop: Literal["first", "all", "restart"] = "first",
        max_repetitions: int | Mapping[str, int] | None = None,
        seed_by: Literal["name"] | None = None,
    ) -> MapDataset[T]:
        """Mix datasets by weight, evenly and without randomness.

        An epoch ends when the first component is exhausted. The next epoch continues in each
        component where the previous one ended.

        Args:
            datasets: The components, in a mapping by their names.
            weights: One positive number per component, with the same names; equal by default. A
                `schedule` by step changes them from certain indices on.
            stop: When an epoch ends. "first": when one component has ended. "all": when all have.
                "restart": not at all; components begin their next epoch.
            max_repetitions: With "restart": how often a component may be read, or each by name.
            seed_by: "name": combine the seeds of each component with its name.
        """
        options = nodes.MixOptions("elements", stop, max_repetitions, seed_by)
        return nodes.MixedMapDataset(datasets, weights, options)

    def select_from_datasets(
        cls,
        datasets: Sequence[MapDataset[T]],
        selection_map: transforms.DatasetSelectionMap,
    ) -> MapDataset[T]:
        """Mix datasets with a map from each index to a dataset and an index in that dataset."""
        return nodes.SelectedMapDataset(datasets, selection_map)

    def concatenate(cls, datasets: Sequence[MapDataset[T]]) -> MapDataset[T]:
        """Concatenate datasets in each epoch."""
        return nodes.ConcatenateMapDataset(datasets)


@hints.with_hints
class MapDataset(
    MapSteering[T_co], Dataset["MapDataset[Any]"], Generic[T_co], metaclass=_MapDatasetFactories
):
    """A dataset with random access: it returns any element by its index.

    `len(ds)` is the length of one epoch. Larger indices address later epochs, where a shuffle has
    another order and a random map other numbers. `None` means that there is no element at an
    index; iteration skips it.

    Datasets are immutable: each transformation returns a new one. Nothing is read until an
    element is requested.

    A subclass has to define `__len__` and `__getitem__(index)`.

    Example:
        >>> ds = MapDataset.range(10).shuffle(seed=1).map(lambda x: x * 2).batch(4)
        >>> ds[0]
        >>> list(ds)
    """

    same_each_epoch: ClassVar[bool] = True
    """Whether each epoch has the same elements in the same order, if its parents' epochs have."""

    def __init__(self, parents: MapDataset[Any] | Sequence[MapDataset[Any]] = ()) -> None:
        self._parents = (parents,) if isinstance(parents, MapDataset) else tuple(parents)

    # Reading.

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the length of one epoch."""

    @overload
    def __getitem__(self, index: builtins.slice) -> MapDataset[T_co]: ...
    @overload
    def __getitem__(self, index: int) -> T_co | Any: ...  # None if there is no element.
    @abc.abstractmethod
    def __getitem__(self, index: builtins.slice | int) -> MapDataset[T_co] | T_co | Any:
        """Return the element at an index, or a slice as a dataset."""

    def getitem(self, index: int) -> T_co | None:
        """Read one element. Transformations call this, not `__getitem__`."""
        return self[index]

    stacks = False
    """Whether `getitem_into` makes use of its memory."""

    def getitem_into(self, index: int, empty: Empty) -> T_co | None:
        """Read one element; a batch that is stacked here is stacked in memory from `empty`."""
        return self.getitem(index)

    def getitems(self, indices: Indices) -> Sequence[T_co | None]:
        """Read a chunk of elements, in the order of `indices`.

        Transformations call this. An element that cannot be read is a Failure in the result.
        """
        positions = indices.tolist()
        if type(self)._getitems is MapDataset._getitems:
            read = raising(self.__getitem__) if tolerates(self) else self.__getitem__
            return read_singly(read, positions, self, positions)  # type: ignore[no-any-return]
        return read_bulk(self, "_getitems", positions, self, positions)  # type: ignore[no-any-return]

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        """Return a stacked chunk if its elements are rows of one array, else None."""
        return None

    def _getitems(self, indices: Sequence[int]) -> Sequence[T_co | None]:
        """Read elements. A subclass may override this if reading many at once is cheaper."""
        return [self[index] for index in indices]

    def __iter__(self) -> DatasetIterator[T_co]:
        return self.to_iter_dataset().__iter__()

    def __bool__(self) -> bool:
        return len(self) != 0

    # The graph.

    @property
    def chunk_hint(self) -> int:
        """The smallest chunk for which reading elements together is worth it."""
        return max((parent.chunk_hint for parent in self._parents), default=1)

    @property
    def sparse(self) -> bool:
        """Whether elements may be missing, because of a filter or flat map upstream."""
        return any(parent.sparse for parent in self._parents)

    @property
    def _period(self) -> int | None:
        """The number of indices after which an infinite dataset repeats; None if unknown."""
        if len(self) < _ENDLESS or len(self._parents) != 1:
            return None
        (parent,) = self._parents
        return len(parent) if len(parent) < _ENDLESS else parent._period

    def source_index(self, index: int) -> int:
        """Return the index of the element in the source, or the closest index that is known."""
        if len(self._parents) == 1:
            return self._parents[0].source_index(index)
        return index

    def _record_at(self, index: int) -> tuple[int, int]:
        """Return the record of a source at an index, and its epoch."""
        epoch, record = divmod(index, len(self))
        return record, epoch

    def _traced(self, tracer: Tracer) -> Any:
        """Return the same transformation of elements that carry their origins."""
        return tracer.indexable(self)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        """Return before which index of a parent all elements are that come before `stop` here.

        None if it does not tell where they are.
        """
        return None

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        """Return the indices before `stop` with elements from the indices `keys` of each parent."""
        raise NotImplementedError

    def find(
        self, source_index: int, source: str | None = None, *, stop: int | None = None
    ) -> list[int]:
        """Return the indices at which a record comes.

        This is the inverse of `provenance`. Shuffles, slices, mixtures and batches are computed
        backwards, and nothing is read. After a filter or a flat map, the record is read where it
        may be.

        Args:
            source_index: The number of the record in its source.
            source: The name of the source, as in `Origin.source`, if there are several.
            stop: How many indices to look at; by default all of them.
        """
        from wholegrain._graph import finding  # Rarely used.

        return finding.find(self, source_index, source, stop)

    # Transformations.

    def map(self, transform: Maps[T_co, R | None] | Callable[[T_co], R | None]) -> MapDataset[R]:
        """Replace each element by `transform(element)`.

        Returning None drops the element.
        """
        return nodes.MapMapDataset(self, transform)

    def map_with_index(
        self, transform: MapsWithIndex[T_co, R | None] | Callable[[int, T_co], R | None]
    ) -> MapDataset[R]:
        """Replace each element by `transform(index, element)`.

        The index continues across epochs: it is the index that was requested.
        """
        return nodes.MapWithIndexMapDataset(self, transform)

    def random_map(
        self,
        transform: MapsAtRandom[T_co, R | None] | Callable[[T_co, np.random.Generator], R | None],
        *,
        seed: int | None = None,
    ) -> MapDataset[R]:
        """Replace each element by `transform(element, rng)`.

        `rng` is a numpy generator that belongs to the index: it is the same in every run and
        different in every epoch. Use it only during the call.

        Args:
            transform: A `RandomMap`, or a function of the element and the generator.
            seed: By default it is derived from `ds.seed(...)` upstream.
        """
        return nodes.RandomMapMapDataset(self, transform, seed)

    def filter(self, transform: Filters[T_co] | Callable[[T_co], Any]) -> MapDataset[T_co]:
        """Keep the elements for which `transform` is true.

        The length stays the same, and dropped elements read as None.
        """
        return nodes.FilterMapDataset(self, transform)

    @overload
    def batch(
        self: MapDataset[Leaf],
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: None = ...,
    ) -> MapDataset[NDArray[Any]]: ...
    @overload
    def batch(
        self: MapDataset[dict[K, LeafT]],
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: None = ...,
    ) -> MapDataset[dict[K, NDArray[Any]]]: ...
    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: None = ...,
    ) -> MapDataset[Any]: ...
    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: Callable[[Sequence[T_co]], R],
    ) -> MapDataset[R]: ...
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[Any]], Any] | None = None,
    ) -> MapDataset[Any]:
        """Stack `batch_size` consecutive elements of an epoch.

        To batch across epochs, call `repeat` first.

        Args:
            batch_size: The number of elements in a batch.
            drop_remainder: Whether to drop a short batch at the end of each epoch.
            batch_fn: Combines a list of elements into a batch; by default leaves are stacked.
        """
        return nodes.BatchMapDataset(self, batch_size, drop_remainder, batch_fn)

    def shuffle(self, seed: int | None = None) -> MapDataset[T_co]:
        """Put the elements of each epoch in a random order, without a buffer.

        Args:
            seed: From 0 to 2**32 - 1. By default it is derived from `ds.seed(...)` upstream.
        """
        return nodes.ShuffleMapDataset(self, seed)

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> MapDataset[T_co]:
        """Treat several epochs as one.

        Args:
            num_epochs: The number of epochs; infinite by default.
            reseed_each_epoch: Whether shuffles and random maps upstream differ between the
                epochs. If not, every epoch is the same as the first.
        """
        return nodes.RepeatMapDataset(self, num_epochs, reseed_each_epoch)

    def slice(self, sl: builtins.slice | Sequence[int] | MapDataset[int]) -> MapDataset[T_co]:
        """Take the elements of a Python slice, or those at a sequence of indices.

        `ds[shard_index::shard_count]` is the usual way to shard.
        """
        if isinstance(sl, builtins.slice):
            return nodes.SliceMapDataset(self, sl)
        return nodes.ReindexMapDataset(self, sl)

    def shard(
        self,
        shard_options: ShardOptions,
        remainder: Literal["drop", "pad", "keep"] = "drop",
    ) -> MapDataset[Any]:
        """Take the part of one process: every n-th element, and the same number in all parts.

        Args:
            shard_options: The part, such as `ShardByJaxProcess()`.
            remainder: "drop" drops the last elements of an epoch that are too few for all parts,
                and logs how many. "pad" repeats the last element instead, and adds whether an
                element is one of the data: under the key "mask" if elements are dicts, else
                elements are pairs. "keep" gives some parts an element more, as `ds[i::n]` does.
        """
        return nodes.shard_dataset(self, shard_options, remainder)

    def cache(
        self, path: str | os.PathLike[str], max_bytes: str | float | None = None
    ) -> MapDataset[T_co]:
        """Keep the elements on disk, so that each is computed once.

        Later epochs, other processes and later runs read them from `path`. An element is kept when
        it is first read; `wholegrain cache build` computes all of them ahead of time. If the
        pipeline upstream changes, its code or its files, elements are computed again.

        Put `cache` after expensive stages, and before `shuffle` and `random_map`: every epoch has
        to have the same elements.

        Args:
            path: A folder. It is created if it does not exist. Several pipelines may share it.
            max_bytes: How large the folder may become: a number, a text such as `"100GB"`, or a
                fraction of the disk such as `0.5`. When it is full, elements of pipelines that
                nobody uses are deleted; after that, no more elements are kept.
        """
        return nodes.DiskCacheMapDataset(self, path, max_bytes)

    def seed(self, seed: int) -> MapDataset[T_co]:
        """Set the seed that shuffles and random maps downstream derive theirs from."""
        return nodes.SeedMapDataset(self, seed)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> IterDataset[T_co]:
        """Read one epoch in order, ahead of the consumer.

        Args:
            read_options: How far to read ahead, and with how many threads.
            allow_nones: Whether to return None for missing elements instead of skipping them.
        """
        if not (read_options is None or hasattr(read_options, "prefetch_buffer_size")):
            raise TypeError(
                "`to_iter_dataset` needs options, such as `ReadOptions(num_threads=4)`, but got"
                f" {read_options!r}."
            )
        return nodes.PrefetchIterDataset(
            self, read_options or self._default_read_options(), allow_nones
        )

    def _default_read_options(self) -> ReadOptions:
        return ReadOptions()

    def apply(
        self, transformations: transforms.Transformation | transforms.Transformations
    ) -> MapDataset[Any]:
        """Apply one transformation object, or a sequence of them."""
        return nodes.apply_transformations(self, transformations)  # type: ignore[no-any-return]
