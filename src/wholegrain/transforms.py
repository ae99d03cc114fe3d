"""Base classes of transformations: define one method, and use it in datasets and DataLoaders."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class Map(abc.ABC):
    """Computes one element from one element."""

    @abc.abstractmethod
    def map(self, element: Any) -> Any:
        """Compute the new element."""


class RandomMap(abc.ABC):
    """Computes one element from one element and a random generator.

    The generator belongs to the position of the element, so it draws the same numbers in
    every run. Use it only during the call.
    """

    @abc.abstractmethod
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Compute the new element, drawing from `rng`."""


class MapWithIndex(abc.ABC):
    """Computes one element from one element and its index."""

    @abc.abstractmethod
    def map_with_index(self, index: int, element: Any) -> Any:
        """Compute the new element."""


class TfRandomMap(abc.ABC):
    """A random map for DataLoaders whose method is called `np_random_map`."""

    @abc.abstractmethod
    def np_random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Compute the new element, drawing from `rng`."""


class Filter(abc.ABC):
    """Keeps the elements for which `filter` is true."""

    @abc.abstractmethod
    def filter(self, element: Any) -> bool:
        """Return whether to keep `element`."""


class FlatMap(abc.ABC):
    """Splits one element into up to `max_fan_out` elements.

    `max_fan_out` has to be an upper bound for every element: a MapDataset reserves that many
    indices for each element of its parent.
    """

    max_fan_out: int

    @abc.abstractmethod
    def flat_map(self, element: Any) -> Sequence[Any]:
        """Split `element` into its parts."""


@dataclass(frozen=True)
class Batch:
    """Groups `batch_size` consecutive elements.

    Args:
        batch_size: The number of elements in a batch.
        drop_remainder: Whether to drop a short last batch.
        batch_fn: Combines a list of elements into a batch. By default the leaves of the elements
            are stacked into numpy arrays.
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None


class DatasetSelectionMap(abc.ABC):
    """Defines which dataset, and which element of it, is at each index of a mixture.

    It has to be stateless, deterministic and picklable.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the length of one epoch of the mixture."""

    @abc.abstractmethod
    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return the number of the dataset and the index in it."""


Transformation = Map | RandomMap | TfRandomMap | Filter | FlatMap | Batch | MapWithIndex
Transformations = Sequence[Transformation]
