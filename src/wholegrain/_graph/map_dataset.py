"""MapDataset: elements by index."""

from __future__ import annotations

import abc
import builtins
import copy
from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

import numpy as np

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
from wholegrain._graph import hints, nodes, seeds
from wholegrain._graph.chunks import read_bulk, read_singly
from wholegrain._graph.parents import replace_parents
from wholegrain._observe.shown import Shown
from wholegrain.options import ReadOptions

if TYPE_CHECKING:
    from wholegrain import transforms
    from wholegrain._graph.iter_dataset import IterDataset
    from wholegrain._graph.iterator import DatasetIterator

R = TypeVar("R")

_ENDLESS = 2**48
"""Nobody gets to the end of that many: part of an endless dataset, such as every third element."""
P = ParamSpec("P")


class Source(Protocol[T_co]):
    """What `MapDataset.source` reads from: anything with a length and integer indices."""

    def __len__(self) -> int:
        """Count the records."""

    def __getitem__(self, index: int, /) -> T_co:
        """Read the record at `index`, from 0 to the length minus 1."""


class _MapDatasetFactories(abc.ABCMeta):
    """The ways to make a MapDataset. They belong to the class: an instance has none of them."""

    def source(cls, source: Source[T]) -> MapDataset[T]:
        """Make a dataset of the elements of `source`.

        Args:
            source: Anything with `__len__` and an integer `__getitem__`. It is read from several
                threads at once. If it has `__getitems__(indices)`, many elements are read by
                one call.
        """
        return nodes.SourceMapDataset(source)

    def range(cls, start: int, stop: int | None = None, step: int = 1) -> MapDataset[int]:
        """Make a dataset of the integers that Python's `range` gives."""
        return nodes.RangeMapDataset(start, stop, step)

    def mix(
        cls, datasets: Sequence[MapDataset[T]], weights: Sequence[float] | None = None
    ) -> MapDataset[T]:
        """Mix datasets by weight, evenly and without randomness.

        The length is how long all components last; later epochs of the mixture go on in the
        components where the one before ended.

        Args:
            datasets: The components.
            weights: One positive number for each; by default all the same.
        """
        return nodes.MixedMapDataset(datasets, weights)

    def select_from_datasets(
        cls,
        datasets: Sequence[MapDataset[T]],
        selection_map: transforms.DatasetSelectionMap,
    ) -> MapDataset[T]:
        """Mix datasets by a map from each index to a dataset and an index in it."""
        return nodes.SelectedMapDataset(datasets, selection_map)

    def concatenate(cls, datasets: Sequence[MapDataset[T]]) -> MapDataset[T]:
        """Put datasets one after the other, in each epoch."""
        return nodes.ConcatenateMapDataset(datasets)


@hints.with_hints
class MapDataset(Shown, Generic[T_co], metaclass=_MapDatasetFactories):
    """A dataset that gives any element by its index, without what stands before it.

    `len(ds)` is the length of one epoch. Indices at and past it address later epochs, where a
    shuffle has another order and a random map other numbers. `None` means that there is no
    element at an index; iterating leaves it out.

    Datasets do not change: each transformation returns a new one. Nothing is read before an
    element is asked for.

    A subclass has to define `__len__` and `__getitem__(index)`.

    Example:
        >>> ds = MapDataset.range(10).shuffle(seed=1).map(lambda x: x * 2).batch(4)
        >>> ds[0]
        >>> list(ds)
    """

    _parents: tuple[MapDataset[Any], ...] = ()

    _repeats_itself: ClassVar[bool] = True
    """Whether what it does to an element is the same in each epoch."""

    def __init__(self, parents: MapDataset[Any] | Sequence[MapDataset[Any]] = ()) -> None:
        self._parents = (parents,) if isinstance(parents, MapDataset) else tuple(parents)

    # Reading.

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the length of one epoch."""

    @overload
    def __getitem__(self, index: builtins.slice) -> MapDataset[T_co]: ...
    @overload
    def __getitem__(self, index: int) -> T_co | Any: ...  # None where there is no element.
    @abc.abstractmethod
    def __getitem__(self, index: builtins.slice | int) -> MapDataset[T_co] | T_co | Any:
        """Return the element at an index, or the dataset of a slice."""

    def getitem(self, index: int) -> T_co | None:
        """Read one element: what transformations call."""
        return self[index]

    def getitems(self, indices: Indices) -> Sequence[T_co | None]:
        """Read a chunk of elements, in the order of `indices`.

        What transformations call: an element that cannot be read stands there as a Failure.
        """
        places = indices.tolist()
        if type(self)._getitems is MapDataset._getitems:
            return read_singly(self.__getitem__, places, self, places)  # type: ignore[no-any-return]
        return read_bulk(self, "_getitems", places, self, places)  # type: ignore[no-any-return]

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        """Return a chunk of elements stacked, where they are rows of one array; else None."""
        return None

    def _getitems(self, indices: Sequence[int]) -> Sequence[T_co | None]:
        """Read elements; a subclass may override it where one read of many is better."""
        return [self[index] for index in indices]

    def __iter__(self) -> DatasetIterator[T_co]:
        return self.to_iter_dataset().__iter__()

    def __bool__(self) -> bool:
        return len(self) != 0

    # The graph.

    @property
    def parents(self) -> tuple[MapDataset[Any], ...]:
        """The datasets that this one reads from."""
        return self._parents

    @property
    def _parent(self) -> MapDataset[Any]:
        (parent,) = self._parents
        return parent

    def with_parents(self, parents: Sequence[MapDataset[Any]]) -> MapDataset[T_co]:
        """Return the same transformation of other datasets."""
        if all(new is old for new, old in zip(parents, self._parents, strict=True)):
            return self
        clone = copy.copy(self)
        replace_parents(clone, self._parents, tuple(parents))
        clone._follow_parents()
        return clone

    def _follow_parents(self) -> None:
        """Compute what follows from the parents: called for each new set of them."""

    @property
    def chunk_hint(self) -> int:
        """How many elements should be read at once at least, so that reading together pays."""
        return max((parent.chunk_hint for parent in self._parents), default=1)

    @property
    def sparse(self) -> bool:
        """Whether elements may be missing, because a filter or flat map stands above."""
        return any(parent.sparse for parent in self._parents)

    @property
    def _period(self) -> int | None:
        """After how many indices an endless dataset begins again; None if it is not known."""
        if len(self) < _ENDLESS or len(self._parents) != 1:
            return None
        (parent,) = self._parents
        return len(parent) if len(parent) < _ENDLESS else parent._period

    def source_index(self, index: int) -> int:
        """Return the index by which the source knows the element, as far as it is known."""
        if len(self._parents) == 1:
            return self._parents[0].source_index(index)
        return index

    @property
    def _default_seed(self) -> int | None:
        return seeds.default_seed(self)

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(f"The element spec of {self} is not known without reading.")

    def __str__(self) -> str:
        return type(self).__name__

    def __dir__(self) -> list[str]:
        return hints.names_of(self)

    # Transformations.

    def map(self, transform: Maps[T_co, R | None] | Callable[[T_co], R | None]) -> MapDataset[R]:
        """Replace each element by `transform` of it.

        Returning None takes the element out.
        """
        return nodes.MapMapDataset(self, transform)

    def map_with_index(
        self, transform: MapsWithIndex[T_co, R | None] | Callable[[int, T_co], R | None]
    ) -> MapDataset[R]:
        """Replace each element by `transform(index, element)`.

        The index goes on over epochs: it is the one that was asked for here.
        """
        return nodes.MapWithIndexMapDataset(self, transform)

    def random_map(
        self,
        transform: MapsAtRandom[T_co, R | None] | Callable[[T_co, np.random.Generator], R | None],
        *,
        seed: int | None = None,
    ) -> MapDataset[R]:
        """Replace each element by `transform(element, rng)`.

        `rng` is a numpy generator of the index's own: the same in every run, another in every
        epoch, and valid during the call only.

        Args:
            transform: A `RandomMap`, or a function of the element and the generator.
            seed: By default it follows from `ds.seed(...)` upstream.
        """
        return nodes.RandomMapMapDataset(self, transform, seed)

    def filter(self, transform: Filters[T_co] | Callable[[T_co], Any]) -> MapDataset[T_co]:
        """Keep the elements for which `transform` is true.

        The length stays the same, the elements that were dropped read as None.
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

        To batch over the ends of epochs, `repeat` first.

        Args:
            batch_size: How many elements make a batch.
            drop_remainder: Whether to leave out a short batch at the end of each epoch.
            batch_fn: Makes a batch of a list of elements; by default leaves are stacked.
        """
        return nodes.BatchMapDataset(self, batch_size, drop_remainder, batch_fn)

    def shuffle(self, seed: int | None = None) -> MapDataset[T_co]:
        """Put the elements of each epoch in a random order, without a buffer.

        Args:
            seed: From 0 to 2**32 - 1. By default it follows from `ds.seed(...)` upstream.
        """
        return nodes.ShuffleMapDataset(self, seed)

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> MapDataset[T_co]:
        """Count several epochs as one.

        Args:
            num_epochs: How many; forever by default.
            reseed_each_epoch: Whether shuffles and random maps upstream differ between the
                epochs. If not, every epoch is the first one again.
        """
        return nodes.RepeatMapDataset(self, num_epochs, reseed_each_epoch)

    def slice(self, sl: builtins.slice | Sequence[int] | MapDataset[int]) -> MapDataset[T_co]:
        """Take the elements of a Python slice, or those at a sequence of indices.

        `ds[shard_index::shard_count]` is the usual way to shard.
        """
        if isinstance(sl, builtins.slice):
            return nodes.SliceMapDataset(self, sl)
        return nodes.IndexedMapDataset(self, sl)

    def seed(self, seed: int) -> MapDataset[T_co]:
        """Set the seed from which those of later shuffles and random maps follow."""
        return nodes.SeedMapDataset(self, seed)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> IterDataset[T_co]:
        """Read one epoch in order, ahead of the consumer.

        Args:
            read_options: How far ahead, and with how many threads.
            allow_nones: Whether to give None for missing elements instead of leaving them out.
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

    def pipe(
        self, func: Callable[Concatenate[Self, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return `func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)
