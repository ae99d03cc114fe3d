"""The protocol of a source: a length, and random access to records."""

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class RandomAccessDataSource(Protocol[T_co]):
    """Any object with a length whose records can be read in any order.

    Lists, arrays, TFDS and Hugging Face datasets are sources. Inheriting from this class is
    optional; it documents the intent and enables type checks.

    Many threads read a source at once, and it always returns the same record for the same index.
    To be used with worker processes, it has to be picklable. To be used with a `DataLoader` that is
    checkpointed, its `repr` has to identify the data and be the same in every process. If reading
    many records at once is cheaper than one by one, a source may define `__getitems__(indices)`,
    which returns the records at `indices` in the same order.

    Example:
        >>> class Squares(RandomAccessDataSource[int]):
        ...     def __len__(self) -> int:
        ...         return 10
        ...     def __getitem__(self, index: int) -> int:
        ...         return index * index
        >>> Squares()[3]
        9
    """

    def __len__(self) -> int:
        """Return the number of records."""
        ...

    def __getitem__(self, index: int) -> T_co:
        """Return the record at `index`, where `0 <= index < len(self)`."""
        ...


@runtime_checkable
class SupportsBatchedReadRandomAccessDataSource(RandomAccessDataSource[T_co], Protocol[T_co]):
    """A source that reads many records at once more cheaply than one by one.

    Datasets and the DataLoader call `__getitems__` for a chunk of records, and fall back to
    `__getitem__` if it raises, to find the record that cannot be read.
    """

    def __getitems__(self, indices: Sequence[int]) -> Sequence[T_co]:
        """Return the records at `indices`, in this order and as often as they occur."""
        ...
