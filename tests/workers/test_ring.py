import gc
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain._workers.layout import Bytes
from wholegrain._workers.local import memory
from wholegrain._workers.local.ring import Arena, SlotViews, slot_size

KINDS: list[memory.Kind] = ["memfd", "unlinked", "named"]


class Pair:
    """An arena and the views of its slots, in one process."""

    def __init__(self, kind: memory.Kind = "memfd") -> None:
        name = memory.new_name()
        self.views = SlotViews(name)
        self.segments = 0
        self.retired: list[int] = []
        self.arena = Arena(kind, name, self._announce, self._retire)

    def _announce(self, number: int, size: int, count: int, handle: memory.Handle) -> None:
        self.segments += 1
        self.views.add(number, size, count, handle)

    def _retire(self, number: int) -> None:
        self.retired.append(number)
        self.views.remove(number)

    def give_back_released(self) -> list[int]:
        released, given_up = self.views.take_released()
        for slot in released:
            self.arena.give_back(slot)
        for slot in given_up:
            self.arena.give_up(slot)
        return released


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def test_both_sides_see_the_same_bytes(pair: Pair) -> None:
    slot, block = pair.arena.take(100_000)
    block[:100_000] = np.arange(100_000, dtype=np.uint8)
    view = pair.views.open(slot)
    np.testing.assert_array_equal(view[:100_000], np.arange(100_000, dtype=np.uint8))
    view[5] = 77
    assert block[5] == 77


def test_a_slot_comes_free_when_the_last_view_of_a_view_is_gone(pair: Pair) -> None:
    slot, _ = pair.arena.take(1 << 16)
    array = np.ndarray((16, 64), np.float32, pair.views.open(slot), 64)
    rows = array[2:]
    column = rows[:, 1]
    as_bytes = column.view(np.int32).data
    del array
    assert pair.give_back_released() == []
    del rows
    assert pair.give_back_released() == []
    del column
    assert pair.give_back_released() == []
    del as_bytes
    assert pair.give_back_released() == [slot]


def test_slices_of_the_base_do_not_free_the_slot_twice(pair: Pair) -> None:
    slot, _ = pair.arena.take(1 << 16)
    array = np.ndarray((16,), np.float32, pair.views.open(slot), 0)
    base = array.base
    assert isinstance(base, np.ndarray)
    part = base[10:20]
    copy = base.copy()
    del copy, array, base
    assert pair.give_back_released() == []
    del part
    assert pair.give_back_released() == [slot]


def test_a_slot_in_a_reference_cycle_comes_free_with_it(pair: Pair) -> None:
    slot, _ = pair.arena.take(1 << 16)
    cycle: list[object] = [np.ndarray((16,), np.float32, pair.views.open(slot), 0)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pair.give_back_released() == [slot]


def test_memory_is_used_again(pair: Pair) -> None:
    for _ in range(100):
        slot, _ = pair.arena.take(5 << 20)
        pair.arena.give_back(slot)
    assert pair.segments == 1


def test_memory_of_sizes_that_do_not_come_again_goes_back_to_the_system() -> None:
    pair = Pair()
    for megabytes in range(1, 60):
        slot, _ = pair.arena.take(megabytes << 20)
        pair.arena.give_back(slot)
    assert pair.segments - len(pair.retired) < 5


def test_many_slots_need_few_segments() -> None:
    pair = Pair()
    slots = [pair.arena.take(3 << 20)[0] for _ in range(200)]
    assert len(set(slots)) == 200
    assert pair.segments < 25


@given(st.integers(1, 1 << 34))
def test_slots_are_large_enough_and_not_much_larger(nbytes: int) -> None:
    size = slot_size(nbytes)
    assert nbytes <= size <= max(1 << 14, nbytes * 1.13 + 4096)
    assert size % 4096 == 0
    assert slot_size(size) == size


@given(st.lists(st.tuples(st.integers(1, 300_000), st.booleans()), max_size=60))
def test_slots_in_use_never_overlap(steps: list[tuple[int, bool]]) -> None:
    pair = Pair()
    used: list[tuple[int, Bytes, int]] = []
    for number, (nbytes, give_back) in enumerate(steps):
        slot, block = pair.arena.take(nbytes)
        block[:nbytes] = number % 251
        used.append((slot, block[:nbytes], number % 251))
        if give_back:
            returned, content, value = used.pop(len(used) // 2)
            assert (content == value).all()
            pair.arena.give_back(returned)
    for _, content, value in used:
        assert (content == value).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_a_forked_child_may_see_is_not_used_again(pair: Pair) -> None:
    slots = [pair.arena.take(1 << 16)[0] for _ in range(3)]
    views = [pair.views.open(slot) for slot in slots[:2]]
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    views.append(pair.views.open(slots[2]))
    del views
    assert pair.give_back_released() == slots[2:]
    assert {pair.arena.take(1 << 16)[0] for _ in range(40)}.isdisjoint(slots)
    # All of that memory was let go of, the rest of its slots included.
    assert pair.retired == [slots[0] >> 20]


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "fork"]), st.integers(0, 3))))
def test_forks_change_only_which_slots_are_used(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    held: list[tuple[int, Any]] = []
    forked: set[int] = set()
    for step, number in steps:
        if step == "take":
            slot, block = pair.arena.take((1 << 20) * (1 + number))
            assert slot not in forked
            assert slot not in [other for other, _ in held]
            block[:] = number
            held.append((slot, pair.views.open(slot)))
        elif step == "give" and held:
            held.pop(number % len(held))
            pair.give_back_released()
        elif step == "fork":
            pair.views._note_fork()
            forked |= {slot for slot, _ in held}
    held.clear()
    pair.give_back_released()
    assert pair.views.held_bytes == 0
    assert pair.arena._used_bytes == 0
    free = [slot for slots in pair.arena._free.values() for slot in slots]
    assert pair.arena._free_bytes == sum(pair.views.size_of(slot) for slot in free)
