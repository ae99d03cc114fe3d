"""IterableIterDataset: the elements of any iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import IterNode
from wholegrain._state.spec import CheckpointSpec
from wholegrain.sources._counted_iter import CountedIterator, shard_of

T = TypeVar("T")


class IterableIterDataset(IterNode[T]):
    """The elements of an iterable, or of what a function returns, in order.

    Each iteration has to produce the same elements. A state is the number of elements that were
    read; restoring it reads them again. If the iterator or the iterable has the methods
    `state_dict()` and `load_state_dict(state)`, the state contains what the first returned, and
    restoring it is as quick as the second. It has to be a dict for JSON.

    If the iterable has a method `shard(num_shards, index)` that returns a part of it, then
    `mp_prefetch` gives each worker a part; otherwise several workers are an error.

    Args:
        iterable: An iterable that can be iterated over more than once, or a function without
            arguments that returns an iterable, such as a generator function.

    Example:
        >>> def squares():
        ...     for number in range(1000):
        ...         yield number * number
        >>> ds = IterableIterDataset(squares).batch(10)
    """

    checkpoint = CheckpointSpec(free=("iterable",))

    def __init__(self, iterable: Iterable[T] | Callable[[], Iterable[T]]) -> None:
        super().__init__()
        given: Any = iterable
        if isinstance(given, Iterator) and iter(given) is given:
            raise TypeError(
                f"`IterableIterDataset` got a {type(given).__name__}, which can be iterated over"
                " only once. Pass the function that makes it, without calling it."
            )
        if not hasattr(given, "__iter__") and not callable(given):
            raise TypeError(
                "`IterableIterDataset` needs an iterable, or a function that returns one, but got"
                f" a {type(given).__name__}."
            )
        self._iterable = given

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a part of the iterable. This shards a worker's copy."""
        del sequential_slice  # The iterable decides what its parts are.
        self._iterable = shard_of(self._iterable, type(self).__name__, sl)

    def open(self) -> DatasetIterator[T]:
        given = self._iterable
        is_iterable = hasattr(given, "__iter__") and not isinstance(given, type)
        return CountedIterator(
            (lambda: given) if is_iterable else lambda: _made(given), "iterable_state_dict"
        )


def _made(make: Callable[[], Any]) -> Any:
    made = make()
    if not hasattr(made, "__iter__"):
        raise TypeError(
            f"The function of `IterableIterDataset` has to return an iterable, but returned a"
            f" {type(made).__name__}."
        )
    return made
