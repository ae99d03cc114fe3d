"""Type names that many modules use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
S = TypeVar("S")
K = TypeVar("K")

ScalarT = TypeVar("ScalarT", bound=np.generic)
NDArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[ScalarT]]
"""The same as in `numpy.typing`, which takes longer to import than most modules of this package."""

Indices: TypeAlias = NDArray[np.int64]
IndexT = TypeVar("IndexT", int, Indices)
"""An index or an array of indices, so that index arithmetic is written once for both."""

State: TypeAlias = dict[str, Any]

Leaf: TypeAlias = complex | str | bytes | np.generic | NDArray[Any]
"""The types that `batch` stacks into arrays."""

LeafT = TypeVar("LeafT", bound=Leaf)


# Protocols for transformation objects with the types of the user's method, because the classes in
# `transforms` have no type parameters.


class Maps(Protocol[T_contra, T_co]):
    """Has the method of `transforms.Map`."""

    def map(self, element: T_contra) -> T_co:
        """Compute the new element."""


class MapsWithIndex(Protocol[T_contra, T_co]):
    """Has the method of `transforms.MapWithIndex`."""

    def map_with_index(self, index: int, element: T_contra) -> T_co:
        """Compute the new element."""


class MapsAtRandom(Protocol[T_contra, T_co]):
    """Has the method of `transforms.RandomMap`."""

    def random_map(self, element: T_contra, rng: np.random.Generator) -> T_co:
        """Compute the new element."""


class Filters(Protocol[T_contra]):
    """Has the method of `transforms.Filter`."""

    def filter(self, element: T_contra) -> Any:
        """Return whether to keep the element."""


class FlatMaps(Protocol[T_contra, T_co]):
    """Has the method of `transforms.FlatMap`."""

    @property
    def max_fan_out(self) -> int:
        """The maximum number of parts."""

    def flat_map(self, element: T_contra) -> Sequence[T_co]:
        """Split an element into its parts."""
