"""Keeps elements in memory for the next epoch."""

import operator

from wholegrain._core.types import State, T
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state, flag_of

_CHUNK = 1024


class CacheIterDataset(OneParentIterNode[T]):
    """Keeps the elements of the first epoch, and returns them again in later epochs.

    Apply a `RepeatIterDataset` to it. The elements are not copied: if a later stage changes one in
    place, it stays changed.

    Args:
        parent: The dataset to read once.
    """

    keeps_size = True
    only_chooses = True
    checkpoint = CheckpointSpec(rereads=True)
    is_cache = True

    def __init__(self, parent: AnyDataset[T]) -> None:
        super().__init__(parent)

    def open(self) -> DatasetIterator[T]:
        return CacheDatasetIterator(self._parent.__iter__())

    def _about(self, name: str) -> str:
        return f"{name} keeps all elements of the first epoch in memory."

    def __str__(self) -> str:
        return "CacheIterDataset"


class CacheDatasetIterator(TransformIterator[T]):
    """A position in a CacheIterDataset.

    A state holds no elements. If an iterator is restored at a position that it has not reached
    before, the next call of `next` reads the parent again from its start.
    """

    def __init__(self, parent: DatasetIterator[T]) -> None:
        super().__init__(parent)
        self._start = parent.get_state()
        self._kept: list[T] = []
        self._filled = False
        self._position = 0
        # The parent's state to save while the parent itself is at another position.
        self._parent_state: State | None = None
        self._missing: int | None = 0  # How many elements to read again; None for all.
        self._reading_again = False

    def __next__(self) -> T:
        if self._missing != 0:
            self._read_again()
        position = self._position
        if position < len(self._kept):
            element = self._kept[position]
        elif self._filled:
            self.check_open()
            raise StopIteration
        else:
            try:
                element = next(self.parent)
            except StopIteration:
                self._filled = True
                raise
            self._kept.append(element)
        self._position = position + 1
        return element

    def _read_again(self) -> None:
        if not self._reading_again:
            go_to_state_of(self.parent, self._start)
            self._kept = []
            self._reading_again = True
        # The error of an element is raised once: the next call continues after that element.
        while self._missing is None or len(self._kept) < self._missing:
            missing = _CHUNK if self._missing is None else self._missing - len(self._kept)
            more = self.parent.take(min(missing, _CHUNK))
            if not more:
                break
            self._kept += more
        self._reading_again = False
        if self._missing is not None and self._parent_state is not None:
            # Failed elements may come between the last kept element and the saved position.
            go_to_state_of(self.parent, self._parent_state)
            self._parent_state = None
        self._missing = 0

    def get_state(self) -> State:
        parent_state = self._parent_state
        return {
            "parent": self.parent.get_state() if parent_state is None else copy_state(parent_state),
            "position": self._position,
            "cache_filled": self._filled,
        }

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent", "position")
        flag_of(state, "cache_filled", self)

    def go_to(self, state: State) -> None:
        position, filled = operator.index(state["position"]), bool(state["cache_filled"])
        has_all = self._filled and self._missing == 0
        self._parent_state, self._missing = None, 0
        self._reading_again = False
        self._filled = has_all or filled
        if self._filled:
            # All elements are kept already, or have to be read again: only the position matters.
            self._parent_state = copy_state(state["parent"])
            self._missing = 0 if has_all else None
        elif position <= len(self._kept):
            go_to_state_of(self.parent, state["parent"])
            del self._kept[position:]
        else:
            self._parent_state = copy_state(state["parent"])
            self._missing = position
        self._position = position

    def close(self) -> None:
        self._kept = []
        super().close()
