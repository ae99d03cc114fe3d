"""The shapes and dtypes of elements that are not there yet."""

import dataclasses
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """Anything with a shape and a dtype."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Return the shape; None for a dimension that is not known."""

    @property
    def dtype(self) -> Any:
        """Return the dtype."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """The shape and dtype of an array that is not there yet.

    Args:
        shape: One number per dimension; None for one that is not known.
        dtype: What `numpy.dtype` takes.
    """

    shape: tuple[int | None, ...]
    dtype: Any
