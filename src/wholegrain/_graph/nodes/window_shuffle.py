"""Shuffles within windows, for datasets that are read in order."""

import contextlib
import operator
from collections.abc import Sequence

import numpy as np

from wholegrain._core import native
from wholegrain._core.failure import can_be_recorded
from wholegrain._core.permute import shuffle_each, shuffle_indices
from wholegrain._core.types import Indices, State, T
from wholegrain._core.whole_number import whole_count, whole_number
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state, wrong_state


class WindowShuffleIterDataset(OneParentIterNode[T]):
    """Each window of consecutive elements in a random order.

    Args:
        parent: The dataset to shuffle.
        window_size: The number of elements that are held in memory and shuffled together.
        seed: The seed of the first window; each later window uses the next number.
    """

    keeps_size = True
    only_chooses = True
    checkpoint = CheckpointSpec(fixed=("window_size", "seed"), rereads=True)
    is_random = True

    def __init__(self, parent: AnyDataset[T], *, window_size: int, seed: int) -> None:
        super().__init__(parent)
        window_size = whole_count("window_size", window_size)
        if window_size < 0:
            raise ValueError(f"`window_size` cannot be negative, but got {window_size}.")
        seed = whole_number("seed", seed)
        if not 0 <= seed < 2**32:
            raise ValueError(
                f"`WindowShuffleIterDataset` needs a seed from 0 to 2**32 - 1, but got seed={seed}."
            )
        self._window_size = window_size
        self._seed = seed

    def open(self) -> DatasetIterator[T]:
        return WindowShuffleDatasetIterator(self._parent.__iter__(), self._window_size, self._seed)

    def _about(self, name: str) -> str:
        return (
            f"{name} keeps a window of elements in memory. A restored iterator reads the window"
            " again."
        )

    def __str__(self) -> str:
        return f"WindowShuffleIterDataset(window_size={self._window_size})"


_INDICES_AT_ONCE = 512
"""The indices of small windows take long walks, so many of them walk together."""


class _Orders:
    """The order of each window; the orders of small windows are computed several at a time.

    Args:
        size: The number of elements in a window.
        seed: The seed of the first window.
    """

    __slots__ = ("_computed", "_most", "_seed", "_size")

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._most = max(1, _INDICES_AT_ONCE // max(1, size)) if native.lib is not None else 1
        self._computed: tuple[int, Sequence[list[int]]] = 0, ()  # The first window, and orders.

    def of(self, window_index: int, size: int) -> list[int]:
        """Return the order of a window that has `size` elements."""
        if self._most == 1 or size != self._size:
            return self._shuffled(size, self._seeds(window_index, 1))[0]
        first, orders = self._computed
        place = window_index - first
        if not 0 <= place < len(orders):
            # More and more of them, because some runs are short.
            count = 4 * len(orders) if orders and place == len(orders) else 1
            orders = self._shuffled(size, self._seeds(window_index, min(count, self._most)))
            self._computed, place = (window_index, orders), 0
        return orders[place]

    def _seeds(self, window_index: int, count: int) -> Indices:
        start = (self._seed + window_index) % 2**32
        return np.arange(start, start + count) % 2**32

    def _shuffled(self, size: int, seeds: Indices) -> list[list[int]]:
        places = np.arange(size)[::-1]
        if len(seeds) == 1:
            return [shuffle_indices(places, size, int(seeds[0])).tolist()]
        shuffled = shuffle_each(np.tile(places, len(seeds)), size, np.repeat(seeds, size))
        return shuffled.reshape(len(seeds), size).tolist()


class WindowShuffleDatasetIterator(TransformIterator[T]):
    """A position in a window, and the parent's state at the start of that window."""

    def __init__(self, parent: DatasetIterator[T], window_size: int, seed: int) -> None:
        super().__init__(parent)
        self._window_size = window_size
        self._orders = _Orders(window_size, seed)
        self._window: list[T] = []  # In shuffled order.
        self._window_start = parent.get_state()
        self._window_index = 0
        self._pos_in_window = 0
        self._is_last = False  # A window that is not full is the last one.

    def __next__(self) -> T:
        position = self._pos_in_window
        if position >= len(self._window):
            if self._is_last:
                raise StopIteration
            self._fill(self._window_index)
            position = 0
        element = self._window[position]
        position += 1
        self._pos_in_window = position
        if position == len(self._window):
            self._window_index += 1
        return element

    def take(self, count: int) -> list[T]:
        position = self._pos_in_window
        if not count or position >= len(self._window):
            return super().take(count)  # `next` reads the next window.
        elements = self._window[position : position + count]
        self._pos_in_window = position = position + len(elements)
        if position == len(self._window):
            self._window_index += 1
        return elements

    @property
    def takes_back(self) -> bool:
        return True

    def put_back(self, count: int) -> None:
        if count:
            self._window_index -= self._pos_in_window == len(self._window)
            self._pos_in_window -= count

    def pass_over(self, count: int) -> None:
        if count:
            self._pos_in_window += count
            self._window_index += self._pos_in_window == len(self._window)

    def _fill(self, window_index: int) -> None:
        """Read a window and shuffle it."""
        start = self.parent.get_state()
        try:
            window = self._read_window()
        except BaseException as error:
            if not can_be_recorded(error):
                raise
            # The next window starts after the element that failed.
            self.check_open()
            self._stand_at(self.parent.get_state())
            raise
        self._stand_at(start)
        self._is_last = 0 < len(window) < self._window_size
        if not window:
            raise StopIteration
        order = self._orders.of(window_index, len(window))
        self._window = [window[position] for position in order]

    def _read_window(self) -> list[T]:
        window: list[T] = []
        while len(window) < self._window_size:
            more = self.parent.take(self._window_size - len(window))
            if not more:
                break
            window += more
        return window

    def _stand_at(self, window_start: State) -> None:
        self._window = []
        self._window_start = window_start
        self._pos_in_window = 0
        self._is_last = False

    def get_state(self) -> State:
        return {
            "parent_window_start_state": copy_state(self._window_start),
            "window_index": self._window_index,
            "pos_in_window": self._pos_in_window,
        }

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent_window_start_state", "window_index", "pos_in_window")
        if (position := state["pos_in_window"]) > self._window_size:
            raise wrong_state(
                self, f"{position} elements of a window were read that has {self._window_size}"
            )

    def go_to(self, state: State) -> None:
        window_index = operator.index(state["window_index"])
        position = operator.index(state["pos_in_window"])
        go_to_state_of(self.parent, state["parent_window_start_state"])
        self._stand_at(self.parent.get_state())
        self._window_index = window_index
        if position:
            window_start = self._window_start
            with contextlib.suppress(StopIteration):
                self._fill(window_index)
            if position > len(self._window):
                raise wrong_state(
                    self, f"{position} elements of a window were read that has {len(self._window)}"
                )
            # After the last element of a window, the state has the next window's index. The window
            # then gets another order, but none of its elements are returned.
            self._window_start = window_start
            self._pos_in_window = position

    def close(self) -> None:
        self._window = []
        self._is_last = False
        super().close()
