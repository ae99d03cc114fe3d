"""IterDataset: elements in order."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    overload,
)

import numpy as np

from wholegrain._core.types import (
    Filters,
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
from wholegrain._graph.dataset import Dataset, R
from wholegrain.options import MultiprocessingOptions

if TYPE_CHECKING:
    import os

    from wholegrain import transforms
    from wholegrain._core.tolerated import FailedRecord
    from wholegrain._graph.iterator import DatasetIterator
    from wholegrain._graph.map_dataset import MapDataset
    from wholegrain._graph.tracing import Tracer
    from wholegrain.schedule import Schedule
    from wholegrain.sharding import ShardOptions

Parent = Any  # A MapDataset or an IterDataset: anything with `__iter__` can be upstream.


class _IterDatasetFactories(abc.ABCMeta):
    """The constructors of an IterDataset. They belong to the class, not to its instances."""

    def mix(
        cls,
        datasets: Sequence[IterDataset[T] | MapDataset[T]]
        | Mapping[str, IterDataset[T] | MapDataset[T]],
        weights: Sequence[float] | Mapping[str, float] | Schedule | None = None,
        *,
        unit: Literal["elements", "tokens"] | Callable[[T], int] = "elements",
        stop: Literal["first", "all", "restart"] = "first",
        max_repetitions: int | Mapping[str, int] | None = None,
        seed_by: Literal["name"] | None = None,
    ) -> IterDataset[T]:
        """Mix datasets by weight, evenly and without randomness, until one of them ends.

        Args:
            datasets: The components. In a mapping they have names, which states refer to, so
                that components may be added and removed between runs.
            weights: One positive number per component, with the same names; equal by default. A
                `schedule` changes them while the mixture is read.
            unit: What the weights are shares of. "tokens": the length of an element, or of its
                feature "tokens", or of its only feature that has a length. A function returns the
                size of an element in any other unit.
            stop: When the mixture ends. "first": when it is the turn of a component that has ended.
                "all": when all have; the others take over the share of one that has ended.
                "restart": not at all; a component that has ended begins its next epoch.
            max_repetitions: With "restart": how often a component may be read, or each by name.
            seed_by: "name": combine the seeds of each component with its name, so that components
                with the same seed have different orders, whatever other components there are.
        """
        options = nodes.MixOptions(unit, stop, max_repetitions, seed_by)
        return nodes.MixedIterDataset(datasets, weights, options)

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            return hints.no_attribute(cls, "class IterDataset", name)


@hints.with_hints
class IterDataset(Dataset[Any], Generic[T_co], metaclass=_IterDatasetFactories):
    """A dataset that returns its elements in order.

    `iter(ds)` starts at the first element, independently of other iterators. Datasets are
    immutable: each transformation returns a new one.

    A subclass has to define `__iter__`, returning a `DatasetIterator`.

    Example:
        >>> ds = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2).batch(2)
        >>> for batch in ds:
        ...     print(batch)
    """

    def __init__(self, parents: Parent | Sequence[Parent] = ()) -> None:
        self._parents = tuple(parents) if isinstance(parents, (list, tuple)) else (parents,)

    @abc.abstractmethod
    def __iter__(self) -> DatasetIterator[T_co]:
        """Return an iterator that starts at the first element."""

    # The graph.

    @property
    def _period(self) -> int | None:
        """The number of elements after which an infinite dataset repeats; None if unknown."""
        return getattr(self._parents[0], "_period", None) if len(self._parents) == 1 else None

    only_chooses: ClassVar[bool] = False
    """Whether its elements are its parents', as they are: it only chooses which, in which order."""

    def _traced(self, tracer: Tracer) -> Any:
        """Return the same transformation of elements that carry their origins."""
        return tracer.iterable(self)

    def find(
        self, source_index: int, source: str | None = None, *, stop: int | None = None
    ) -> list[int]:
        """Return the steps at which a record comes.

        This is the inverse of `provenance`. Where the position of a step is arithmetic, nothing is
        read. Otherwise, as after a filter, all elements are read, and `stop` says how many.

        Args:
            source_index: The number of the record in its source.
            source: The name of the source, as in `Origin.source`, if there are several.
            stop: How many steps to look at; by default all of them.
        """
        from wholegrain._graph import finding  # Rarely used.

        return finding.find(self, source_index, source, stop)

    if not TYPE_CHECKING:  # A type checker would accept any name as an attribute.
        __getitem__ = hints.NotThere(hints.NO_INDEX)

    # Transformations.

    def map(self, transform: Maps[T_co, R] | Callable[[T_co], R]) -> IterDataset[R]:
        """Replace each element by `transform(element)`."""
        return nodes.MapIterDataset(self, transform)

    def map_with_index(
        self, transform: MapsWithIndex[T_co, R] | Callable[[int, T_co], R]
    ) -> IterDataset[R]:
        """Replace each element by `transform(index, element)`, counting from 0."""
        return nodes.MapWithIndexIterDataset(self, transform)

    def random_map(
        self,
        transform: MapsAtRandom[T_co, R] | Callable[[T_co, np.random.Generator], R],
        *,
        seed: int | None = None,
    ) -> IterDataset[R]:
        """Replace each element by `transform(element, rng)`.

        `rng` is a numpy generator that belongs to the position: it is the same in every run.
        Use it only during the call.

        Args:
            transform: A `RandomMap`, or a function of the element and the generator.
            seed: By default it is derived from `ds.seed(...)` upstream.
        """
        return nodes.RandomMapIterDataset(self, transform, seed)

    def filter(self, transform: Filters[T_co] | Callable[[T_co], Any]) -> IterDataset[T_co]:
        """Keep the elements for which `transform` is true."""
        return nodes.FilterIterDataset(self, transform)

    @overload
    def batch(
        self: IterDataset[Leaf],
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: None = ...,
    ) -> IterDataset[NDArray[Any]]: ...
    @overload
    def batch(
        self: IterDataset[dict[K, LeafT]],
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: None = ...,
    ) -> IterDataset[dict[K, NDArray[Any]]]: ...
    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: None = ...,
    ) -> IterDataset[Any]: ...
    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = ...,
        batch_fn: Callable[[Sequence[T_co]], R],
    ) -> IterDataset[R]: ...
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[Any]], Any] | None = None,
    ) -> IterDataset[Any]:
        """Stack `batch_size` consecutive elements.

        Args:
            batch_size: The number of elements in a batch.
            drop_remainder: Whether to drop a short batch at the end.
            batch_fn: Combines a list of elements into a batch; by default leaves are stacked.
        """
        return nodes.BatchIterDataset(self, batch_size, drop_remainder, batch_fn)

    def bucket(
        self,
        length: str | Callable[[T_co], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int] | None = None,
        budget: int | None = None,
        *,
        pad_value: Any = 0,
        pad_to_boundary: bool = True,
        remainder: Literal["drop", "keep", "pad"] = "drop",
        shard_options: ShardOptions | None = None,
        load: Callable[[T_co], Any] | None = None,
    ) -> IterDataset[Any]:
        """Batch elements of similar lengths, with little padding and a fixed set of shapes.

        An element goes into the first bucket whose boundary is at least its length. A full bucket
        is a batch. Arrays that are as long as their element are padded; others are stacked.

        With `shard_options`, every host reads this stream, forms the same batches, and returns its
        rows of each: all hosts have the same shapes at the same steps, and a state fits any number
        of hosts. Keep the stream light, with the lengths alone, and read the rest in `load`.

        A state holds no elements. A restored iterator reads again from the oldest element that
        was held.

        Args:
            length: Returns the length of an element, or the key of an array.
            boundaries: The largest length of each bucket, in increasing order.
            batch_sizes: How many elements make a batch: one number, or one for each boundary; on
                all hosts together.
            budget: Instead of `batch_sizes`: how many cells a batch may have, with padding.
            pad_value: The value of empty cells, or a dict with one for each key.
            pad_to_boundary: Whether rows are padded to the boundary. If not, they are padded to
                the longest one of the batch, so shapes vary.
            remainder: What becomes of elements that are left at the end. "drop" drops them, "keep"
                returns smaller batches, and "pad" adds rows of padding and, to every batch, a
                boolean array that is false there: under the key "mask" if elements are dicts, else
                batches are pairs of the batch and the mask.
            shard_options: The part of this process, such as `ShardByJaxProcess()`.
            load: Called for the elements of this process, before padding.
        """
        return nodes.BucketIterDataset(
            self,
            length,
            boundaries,
            batch_sizes,
            budget,
            pad_value=pad_value,
            pad_to_boundary=pad_to_boundary,
            remainder=remainder,
            shard_options=shard_options,
            load=load,
        )

    def on_error(
        self,
        policy: Literal["raise", "skip", "replace"] | Callable[[Exception, FailedRecord], Any],
        *,
        budget: float | None = 100,
        consecutive: int | None = 100,
        log: str | os.PathLike[str] | None = None,
    ) -> IterDataset[T_co]:
        """Tolerate elements that fail, instead of ending the run.

        This holds for exceptions of the source and of functions upstream. Errors of the program
        are always raised: NameError, ImportError, SyntaxError, MemoryError, NotImplementedError.
        `it.errors()` lists what failed.

        Args:
            policy: "skip" leaves the element out. "replace" puts a copy of the next element in its
                place that does not fail; of the same worker or lane, if the pipeline runs in some.
                A function gets the exception and a `FailedRecord`, and returns what takes the place
                of the element, or None. "raise" changes nothing.
            budget: How many failures are tolerated: a number, or a share of all elements, if
                their number is known without reading. If there are more, an error lists them. None
                tolerates any number.
            consecutive: How many failures in a row are tolerated.
            log: A file to which each failure is appended, as a line of JSON.
        """
        rule = nodes.checked_rule(policy, budget, consecutive, log)
        return self if policy == "raise" else nodes.OnErrorIterDataset(self, rule)

    def seed(self, seed: int) -> IterDataset[T_co]:
        """Set the seed that random maps downstream derive theirs from."""
        return nodes.SeedIterDataset(self, seed)

    def mp_prefetch(
        self,
        options: MultiprocessingOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
    ) -> IterDataset[T_co]:
        """Run the pipeline in worker processes, each on its share of the data.

        Args:
            options: How many workers, and how many finished elements each may hold.
            worker_init_fn: Called once in each worker with its index and the number of workers.
            sequential_slice: Whether each worker reads a contiguous part of the sources instead
                of every n-th element.
        """
        return nodes.process_prefetch(self, options, worker_init_fn, sequential_slice)

    def prefetch(self, multiprocessing_options: MultiprocessingOptions) -> IterDataset[T_co]:
        """Call `mp_prefetch`. This is its former name."""
        warnings.warn(
            "`IterDataset.prefetch` is now called `mp_prefetch`.", DeprecationWarning, stacklevel=2
        )
        return self.mp_prefetch(multiprocessing_options)

    def apply(
        self, transformations: transforms.Transformation | transforms.Transformations
    ) -> IterDataset[Any]:
        """Apply one transformation object, or a sequence of them."""
        return nodes.apply_transformations(self, transformations)  # type: ignore[no-any-return]
