"""The shapes and dtypes of elements that have not been read."""

import dataclasses
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """Anything with a shape and a dtype."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Return the shape, with None for an unknown dimension."""

    @property
    def dtype(self) -> Any:
        """Return the dtype."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """The shape and dtype of an array that has not been read.

    Args:
        shape: One number per dimension; None if a dimension is unknown.
        dtype: Anything that `numpy.dtype` accepts.
    """

    shape: tuple[int | None, ...]
    dtype: Any
