"""Places in Python and in C make the same states, which share nothing with the iterator."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from wholegrain._state import place
from wholegrain._state import validate as state
from wholegrain._state.place import PythonChunkPlace, PythonKeptPlace

CHUNK_PLACES = list(dict.fromkeys([PythonChunkPlace, place.ChunkPlace]))
KEPT_PLACES = list(dict.fromkeys([PythonKeptPlace, place.KeptPlace]))
COPIES = list(dict.fromkeys([state.python_copy_state, state.copy_state]))


class Parent:
    def __init__(self, position: int) -> None:
        self.position = position

    def get_state(self) -> dict[str, int]:
        return {"next_index": self.position}


def chunk_place(base: Any, next_indices: list[int] | None) -> Any:
    class Iterator(base):  # type: ignore[misc]
        def _next_index(self) -> int:
            self._next_indices[:] = [1000, 1004, 1007]
            return int(self._next_indices[self._cursor])

    it = Iterator()
    it._base, it._cursor, it._next_indices = 1000, 2, next_indices
    return it


def kept_place(base: Any) -> Any:
    class Iterator(base):  # type: ignore[misc]
        _start = base.kept_state
        _row = base.first_number
        _count = base.second_number

        def __init__(self) -> None:
            self.parent = Parent(7)
            self._start = None

    return Iterator()


@pytest.mark.parametrize("base", CHUNK_PLACES)
def test_an_index_follows_from_the_chunk_and_the_number_of_elements_given(base: Any) -> None:
    assert chunk_place(base, None).get_state() == {"next_index": 1002}


@pytest.mark.parametrize("base", CHUNK_PLACES)
def test_where_elements_are_missing_indices_are_found_out_once(base: Any) -> None:
    it = chunk_place(base, [])
    assert it.get_state() == {"next_index": 1007}
    it._cursor = 1
    assert it.get_state() == {"next_index": 1004}
    it._cursor = 0
    assert it.get_state() == {"next_index": 1000}


@pytest.mark.parametrize("base", KEPT_PLACES)
def test_a_place_without_keys_has_the_state_of_the_parent_now_or_as_it_was(base: Any) -> None:
    it = kept_place(base)
    assert it.get_state() == {"next_index": 7}
    it._start = {"next_index": 5}
    assert it.get_state() == {"next_index": 5}


@pytest.mark.parametrize("base", KEPT_PLACES)
def test_numbers_stand_beside_the_parent_s_state_in_the_order_of_the_keys(base: Any) -> None:
    it = kept_place(base)
    it.state_keys, it._row = ("parent", "row"), 3
    assert it.get_state() == {"parent": {"next_index": 7}, "row": 3}
    it.state_keys, it._count = ("parent", "row", "count"), 4
    assert list(it.get_state().items()) == [("parent", {"next_index": 7}), ("row", 3), ("count", 4)]


@pytest.mark.parametrize("base", KEPT_PLACES)
def test_a_kept_state_does_not_change_with_what_was_handed_out(base: Any) -> None:
    it = kept_place(base)
    it._start = {"parents": [{"next_index": 5}]}
    it.get_state()["parents"][0]["next_index"] = 99
    assert it.get_state() == {"parents": [{"next_index": 5}]}


@pytest.mark.parametrize("base", KEPT_PLACES)
def test_a_failure_of_the_parent_is_raised(base: Any) -> None:
    it = kept_place(base)
    it.parent = None
    with pytest.raises(AttributeError):
        it.get_state()


@pytest.mark.parametrize("base", [*CHUNK_PLACES, *KEPT_PLACES])
def test_a_place_that_holds_itself_is_collected(base: Any) -> None:
    it = chunk_place(base, None) if base in CHUNK_PLACES else kept_place(base)
    if base in CHUNK_PLACES:
        it._next_indices = [it]
    else:
        it._start = {"parent": it}
    gone = weakref.ref(it)
    del it
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("copy_state", COPIES)
def test_copies_share_nothing_that_could_change(copy_state: Callable[[Any], Any]) -> None:
    original: Any = {"a": [{"b": 1}, [2], (3,)], "c": {}, "d": None}
    copy = copy_state(original)
    assert copy == original
    assert list(copy) == list(original)
    assert copy["a"] is not original["a"]
    assert copy["a"][0] is not original["a"][0]
    assert copy["a"][1] is not original["a"][1]
    assert copy["c"] is not original["c"]
    assert copy_state(5) == 5


@pytest.mark.parametrize("copy_state", COPIES)
def test_a_state_inside_itself_is_an_error_and_no_crash(copy_state: Callable[[Any], Any]) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        copy_state(endless)
