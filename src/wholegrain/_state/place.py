"""Where an iterator stands, as base classes that make its states.

Some training loops ask for a state after every step. What it consists of stands in slots, so that
the same classes can be had in C, where no bytecode runs for a state.
"""

from typing import TYPE_CHECKING, Any

from wholegrain._core import native
from wholegrain._core.types import State
from wholegrain._state.validate import copy_state


class PythonChunkPlace:
    """The place of an iterator over indices, read in chunks."""

    __slots__ = ("_base", "_cursor", "_next_indices")

    _base: int
    """The index of the first element of the chunk."""

    _cursor: int
    """How many elements of the chunk were given."""

    _next_indices: list[int] | None
    """The next index behind each number of elements given, where elements are missing in the
    chunk; empty if it has not been found out. None where none are missing."""

    def _next_index(self) -> int:
        raise NotImplementedError

    def get_state(self) -> State:
        """Return the position, as of the last element that was handed out."""
        if self._next_indices is None:
            return {"next_index": self._base + self._cursor}
        return {"next_index": self._next_index()}


class PythonKeptPlace:
    """The place of an iterator behind a state of its parent that it keeps.

    A subclass gives the slots names of its own: `_next_row = KeptPlace.first_number`.
    """

    if not TYPE_CHECKING:  # Other names for slots are more than type checkers know of.
        __slots__ = ("first_number", "kept_state", "second_number", "state_keys")

    parent: Any

    kept_state: Any
    """The parent's state to give. None if that in which it is now is it."""

    state_keys: tuple[str, ...]
    """The keys of a state: for the parent's and for the numbers. Without keys the parent's is
    the state."""

    first_number: Any
    second_number: Any

    def get_state(self) -> State:
        """Return the position, as of the last element that was handed out."""
        keys: tuple[str, ...] = getattr(self, "state_keys", ())
        kept = self.kept_state
        kept = self.parent.get_state() if kept is None else copy_state(kept)
        if not keys:
            return kept  # type: ignore[no-any-return]
        if len(keys) == 2:
            return {keys[0]: kept, keys[1]: self.first_number}
        return {keys[0]: kept, keys[1]: self.first_number, keys[2]: self.second_number}


if TYPE_CHECKING:
    ChunkPlace = PythonChunkPlace
    KeptPlace = PythonKeptPlace
else:
    # There may be no extension, or one of an older build.
    ChunkPlace = getattr(native.lib, "ChunkPlace", PythonChunkPlace)
    KeptPlace = getattr(native.lib, "KeptPlace", PythonKeptPlace)
