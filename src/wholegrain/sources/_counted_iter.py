"""The elements of any iterable, with a state: its own, or how many elements were read."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import State
from wholegrain._graph.iterator import StageIterator, closed_error
from wholegrain._state.validate import number_of, part_of, wrong_state

T = TypeVar("T")

_COUNT = "count_elements_read"


class CountedIterator(StageIterator[T]):
    """A position in an iterable.

    Args:
        make: Returns the iterable from its begin.
        state_key: The key of the iterable's own state.
    """

    def __init__(self, make: Callable[[], Iterable[T]], state_key: str) -> None:
        super().__init__()
        self._make = make
        self._state_key = state_key
        self._closed = False
        self._count = 0
        self._iterable: Any = None
        self._iterator: Iterator[T] | None = None
        self._loaded: tuple[int, Any] = (0, None)

    def _open(self) -> Iterator[T]:
        if self._closed:
            raise closed_error()
        if self._iterable is None:
            self._iterable = own_copy(self._make())
        iterator = self._iterator
        if iterator is None:
            iterator = self._iterator = iter(self._iterable)
        return iterator

    def __next__(self) -> T:
        iterator = self._iterator
        if iterator is None:
            iterator = self._open()
        element = next(iterator)
        self._count += 1
        return element

    @property
    def _stateful(self) -> Any:
        """What has a state: the iterator, or the iterable; None if neither has."""
        return next(filter(has_state, (self._iterator, self._iterable)), None)

    def get_state(self) -> State:
        state: State = {_COUNT: self._count}
        own = self._own_state()
        if own is not None:
            state[self._state_key] = own
        return state

    def _own_state(self) -> Any:
        count, loaded = self._loaded
        if self._count == count:
            return copy.deepcopy(
                loaded
            )  # An iterable may know its position from the first read on.
        stateful = self._stateful
        if stateful is None:
            return None
        try:
            own = copy.deepcopy(stateful.state_dict())
        except Exception as error:
            if is_interruption(error):
                raise
            return None
        # Some versions of Hugging Face's library return the state that was loaded, however many
        # elements were read since then.
        return None if own == loaded else own

    def check_state(self, state: State) -> None:
        number_of(state, _COUNT, self)
        if self._state_key in state and not isinstance(state[self._state_key], Mapping):
            raise wrong_state(self, f"{self._state_key!r} is not a dict")

    def go_to(self, state: State) -> None:
        count = operator.index(part_of(state, _COUNT, self))
        self._iterator = self._iterable = None
        if self._closed:
            self._count = count
            return
        own = state.get(self._state_key)
        if own is None or not self._load(own):
            self._skip(count)
        # What was restored is the state until the next element is read.
        self._loaded = (count, copy.deepcopy(own))
        self._count = count

    def _load(self, own: Any) -> bool:
        """Restore the iterable's own state; return False if it cannot have any."""
        self._open()
        stateful = self._stateful
        if stateful is None or has_shuffle_buffer(stateful):
            return False
        stateful.load_state_dict(copy.deepcopy(own))
        if stateful is self._iterable:
            self._iterator = None  # It has to be opened after the state was loaded.
        return True

    def _skip(self, count: int) -> None:
        if not count:
            return
        iterator = self._open()
        for done in range(count):
            try:
                next(iterator)
            except StopIteration:
                raise wrong_state(
                    self, f"it is after {count} elements, but there are {done}"
                ) from None

    def _get_next_index(self) -> int:
        return self._count

    def _set_next_index(self, index: int) -> None:
        self.set_state({_COUNT: index})

    def close(self) -> None:
        self._closed = True
        iterator, self._iterator, self._iterable = self._iterator, None, None
        close = getattr(iterator, "close", None)
        if callable(close):
            close()


def has_state(value: Any) -> bool:
    """Return whether an object has a state that can be saved and restored."""
    methods = (getattr(value, name, None) for name in ("state_dict", "load_state_dict"))
    return all(map(callable, methods))


def own_copy(iterable: Any) -> Any:
    """Return a copy of an iterable that keeps its state in itself.

    Otherwise two iterators would change one state.
    """
    if not has_state(iterable):
        return iterable
    try:
        return copy.deepcopy(iterable)
    except Exception as error:
        if is_interruption(error):
            raise
        return iterable


def has_shuffle_buffer(iterable: Any) -> bool:
    """Return whether a Hugging Face dataset is shuffled with a buffer.

    Its state does not contain the elements in the buffer, so loading it would skip them.
    """
    stages = [getattr(iterable, "_ex_iterable", None)]
    while stages:
        stage = stages.pop()
        if "BufferShuffled" in type(stage).__name__:
            return True
        stages += [getattr(stage, "ex_iterable", None)] if hasattr(stage, "ex_iterable") else []
        stages += list(getattr(stage, "ex_iterables", None) or ())
    return False


def shard_of(iterable: Any, name: str, sl: slice) -> Any:
    """Return the part of an iterable for a worker, or raise if it cannot be shared.

    Args:
        iterable: What has to be shared.
        name: The class of the dataset, for errors.
        sl: The part.
    """
    count, index = sl.step or 1, sl.start or 0
    if count <= 1:
        return iterable
    shard = getattr(iterable, "shard", None)
    what = f"Cannot slice `IterDataset` source. The iterable of `{name}`"
    if not callable(shard):
        raise ValueError(
            f"{what} cannot be shared by {count} workers: {type(iterable).__name__} has no method"
            " `shard(num_shards, index)`. Use one worker."
        )
    number = getattr(iterable, "num_shards", None)
    if isinstance(number, int) and number < count:
        raise ValueError(
            f"{what} cannot be shared by {count} workers, because it has {number} shards. Use at"
            f" most {number} workers, or create it with more shards, for example with"
            " `to_iterable_dataset(num_shards=...)` and before `shuffle`."
        )
    return shard(num_shards=count, index=index)
