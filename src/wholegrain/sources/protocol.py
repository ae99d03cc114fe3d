"""What makes an object a source: a length, and any record by its number."""

from typing import Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class RandomAccessDataSource(Protocol[T_co]):
    """Anything with a length whose records can be read in any order.

    Lists, arrays, TFDS and Hugging Face datasets are sources as they are; inheriting from this
    class is a way to say so and to get type checks, not a duty.

    A source is read from many threads at once, and always gives the same record for the same
    index. To be used with worker processes it has to be picklable; to be used with a
    `DataLoader` that is checkpointed, its `repr` has to name the data and be the same in every
    process. A source that reads many records at once more cheaply than one by one may offer
    `__getitems__(indices)`, which returns the records of `indices` in the same order.

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
