"""Base classes of transformations: write one method, use it in a dataset or a DataLoader."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class Map(abc.ABC):
    """One element in, one element out."""

    @abc.abstractmethod
    def map(self, element: Any) -> Any:
        """Compute the new element."""


class RandomMap(abc.ABC):
    """One element in, one element out, with a random generator of that element's own.

    The generator belongs to the position of the element, so it gives the same numbers in
    every run. It is valid during the call only.
    """

    @abc.abstractmethod
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Compute the new element, drawing from `rng`."""


class MapWithIndex(abc.ABC):
    """One element and its index in, one element out."""

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
        """Say whether to keep `element`."""


class FlatMap(abc.ABC):
    """One element in, up to `max_fan_out` elements out.

    `max_fan_out` has to be an upper bound for every element: a random-access dataset lays
    that many places out for each of its parent's.
    """

    max_fan_out: int

    @abc.abstractmethod
    def flat_map(self, element: Any) -> Sequence[Any]:
        """Split `element` into its parts."""


@dataclass(frozen=True)
class Batch:
    """Groups `batch_size` consecutive elements.

    Args:
        batch_size: How many elements make a batch.
        drop_remainder: Whether to leave out a last batch that is too short.
        batch_fn: Makes a batch of a list of elements. By default the leaves of the elements
            are stacked into numpy arrays.
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None


class DatasetSelectionMap(abc.ABC):
    """Says which dataset, and which element of it, stands at each place of a mixture.

    It has to be stateless, deterministic and picklable.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Count the places of one epoch of the mixture."""

    @abc.abstractmethod
    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return the number of the dataset and the index in it."""


Transformation = Map | RandomMap | TfRandomMap | Filter | FlatMap | Batch | MapWithIndex
Transformations = Sequence[Transformation]
