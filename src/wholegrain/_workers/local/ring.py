"""Slots: pieces of shared memory that a worker fills, a consumer views, and both use again.

Memory that was written before is written at the speed of memcpy; fresh memory costs ten times
that. So a slot returns to its worker when the last array that views it is gone, and only then:
arrays, slices of slices, memoryviews and jax arrays all hold the slot through their base.
"""

import mmap
from collections import deque
from collections.abc import Callable

import numpy as np

from wholegrain._core.types import NDArray
from wholegrain._read import forks
from wholegrain._workers.local import memory

Bytes = NDArray[np.uint8]

SlotId = int
"""The segment's number, and the place in it in the lowest `_PLACE_BITS` bits."""

_PLACE_BITS = 20
_PAGE = 4096
_SMALLEST = 1 << 14
_SMALL_SEGMENT = 1 << 21
_LARGEST_SEGMENT = 1 << 28
# Free memory that a worker keeps beyond twice of what is in use.
_SPARE = 1 << 26
_MAX_UNSEEN = 16


def slot_size(nbytes: int) -> int:
    """Return the size class of `nbytes`: eight steps to a doubling, so little is wasted."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = max(1 << ((nbytes - 1).bit_length() - 4), _PAGE)
    return -(-nbytes // step) * step


class _Segment:
    """Slots of one size, in one piece of shared memory."""

    __slots__ = ("free", "fresh", "given_up", "memory", "number", "size", "slots")

    def __init__(self, number: int, memory: mmap.mmap, size: int, count: int) -> None:
        self.number = number
        self.memory = memory
        self.size = size
        self.slots: list[Bytes] = [
            np.ndarray((size,), np.uint8, memory, place * size) for place in range(count)
        ]
        self.free = count
        self.fresh = set(range(count))
        self.given_up = 0


class Arena:
    """The worker's side: hands out slots, and makes more of them when none is free.

    Args:
        kind: What kind of shared memory to use.
        name: What its names start with, if it has names.
        announce: Called with the number, slot size, slot count and handle of new memory, before
            any of its slots is used. Takes the handle over.
        retire: Called with the number of memory that is no longer used.
    """

    def __init__(
        self,
        kind: memory.Kind,
        name: str,
        announce: Callable[[int, int, int, memory.Handle], None],
        retire: Callable[[int], None],
    ) -> None:
        self._kind: memory.Kind = kind
        self._name = name
        self._announce = announce
        self._retire = retire
        self._segments: dict[int, _Segment] = {}
        self._free: dict[int, list[SlotId]] = {}
        self._next_number = 0
        self._used_bytes = 0
        self._free_bytes = 0

    def take(self, nbytes: int) -> tuple[SlotId, Bytes]:
        """Return a slot of at least `nbytes`, which only the caller uses until `give_back`."""
        size = slot_size(nbytes)
        free = self._free.get(size)
        if not free:
            free = self._grow(size)
        slot = free.pop()  # The one given back last: most likely still in the cache.
        segment = self._segments[slot >> _PLACE_BITS]
        place = slot & ((1 << _PLACE_BITS) - 1)
        segment.free -= 1
        self._free_bytes -= size
        self._used_bytes += size
        if place in segment.fresh:
            segment.fresh.remove(place)
            memory.populate(segment.memory, place * size, nbytes)
        return slot, segment.slots[place]

    def give_back(self, slot: SlotId) -> None:
        """Make a slot free for the next element."""
        segment = self._segments[slot >> _PLACE_BITS]
        segment.free += 1
        if segment.given_up:
            self._used_bytes -= segment.size
            self._drop_if_unused(segment)
            return
        self._free[segment.size].append(slot)
        self._free_bytes += segment.size
        self._used_bytes -= segment.size
        if self._free_bytes > 2 * self._used_bytes + _SPARE:
            self._shrink(segment)

    def give_up(self, slot: SlotId) -> None:
        """Never use a slot again, which a fork of the consumer may see.

        Nor any other of the same memory: when none of its slots is in use here or there, it is
        returned to the system, which keeps it as long as anyone has it mapped.
        """
        segment = self._segments[slot >> _PLACE_BITS]
        if not segment.given_up:
            self._keep_from_use(segment)
        segment.given_up += 1
        self._used_bytes -= segment.size
        self._drop_if_unused(segment)

    def _keep_from_use(self, segment: _Segment) -> None:
        free = self._free[segment.size]
        self._free[segment.size] = [s for s in free if s >> _PLACE_BITS != segment.number]
        self._free_bytes -= segment.size * segment.free

    def _drop_if_unused(self, segment: _Segment) -> None:
        if segment.free + segment.given_up == len(segment.slots):
            del self._segments[segment.number]
            self._retire(segment.number)

    def _grow(self, size: int) -> list[SlotId]:
        # By half of what there is, so that the number of segments, each of which may cost a
        # descriptor, stays small.
        existing = sum(
            len(s.slots) for s in self._segments.values() if s.size == size and not s.given_up
        )
        count = max(1, _SMALL_SEGMENT // size, existing // 2)
        count = max(1, min(count, _LARGEST_SEGMENT // size))
        number, self._next_number = self._next_number, self._next_number + 1
        shared, handle = memory.create(self._kind, size * count, _segment_name(self._name, number))
        self._announce(number, size, count, handle)
        self._segments[number] = _Segment(number, shared, size, count)
        self._free_bytes += size * count
        free = self._free.setdefault(size, [])
        free.extend((number << _PLACE_BITS) + place for place in reversed(range(count)))
        return free

    def forget_names(self) -> None:
        """Remove names that the consumer did not come to remove. Called when it has gone."""
        if self._kind == "named":
            for number in range(self._next_number):
                memory.forget(_segment_name(self._name, number))

    def _shrink(self, segment: _Segment) -> None:
        """Return memory to the system, of sizes that came up once and not again."""
        for candidate in [s for s in self._segments.values() if s is not segment]:
            if candidate.free == len(candidate.slots):
                self._drop(candidate)
                if self._free_bytes <= 2 * self._used_bytes + _SPARE:
                    return
        if segment.free == len(segment.slots):
            self._drop(segment)

    def _drop(self, segment: _Segment) -> None:
        self._keep_from_use(segment)
        self._drop_if_unused(segment)


def _segment_name(name: str, number: int) -> str:
    return f"{name}-{number}"


class Slot(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """The bytes of a slot, as the base of every array that views it.

    When the last of them is gone this object is, and says so.
    """

    # Set on the one array that stands for the slot. Slices of it have its class, not its duty.
    released: "deque[SlotId] | None" = None
    number: SlotId = -1

    def __del__(self) -> None:
        # Garbage collection may run this at any point of any thread: it only leaves a note.
        if self.released is not None:
            self.released.append(self.number)


class SlotViews:
    """The consumer's side: views of a worker's slots, and which of them came free.

    A fork of the consumer's process sees the slots that are in its hands then, and keeps seeing
    them when the consumer has let go of them: those are given up, and never written again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_number = 0
        self._segments: dict[int, tuple[mmap.mmap, int]] = {}
        self._released: deque[SlotId] = deque()
        self._open: set[SlotId] = set()
        self._forked: set[SlotId] = set()
        self.held_bytes = 0
        """Memory of slots that are in the consumer's hands."""
        forks.call_in_parent(self, SlotViews._note_fork)

    def _note_fork(self) -> None:
        self._forked |= self._open

    def add(self, number: int, size: int, count: int, handle: memory.Handle) -> None:
        """Map memory that the worker announced."""
        self._segments[number] = (memory.attach(handle, size * count), size)
        self._next_number = number + 1
        memory.forget(handle)

    def forget_names(self) -> None:
        """Remove names of memory that a worker made last, and died before it said so."""
        for number in range(self._next_number, self._next_number + _MAX_UNSEEN):
            memory.forget(_segment_name(self._name, number))

    def remove(self, number: int) -> None:
        """Unmap memory that the worker no longer uses."""
        del self._segments[number]

    def open(self, slot: SlotId) -> Slot:
        """Return the bytes of a slot; it comes free when no array views them any more."""
        shared, size = self._segments[slot >> _PLACE_BITS]
        offset = (slot & ((1 << _PLACE_BITS) - 1)) * size
        view = np.ndarray.__new__(Slot, (size,), np.uint8, shared, offset)
        view.released = self._released
        view.number = slot
        self._open.add(slot)
        self.held_bytes += size
        return view

    def size_of(self, slot: SlotId) -> int:
        """Return how many bytes a slot has."""
        return self._segments[slot >> _PLACE_BITS][1]

    def discard(self, slot: SlotId) -> None:
        """Let a slot come free that nobody looked at."""
        self.held_bytes += self._segments[slot >> _PLACE_BITS][1]
        self._released.append(slot)

    def take_released(self) -> tuple[list[SlotId], list[SlotId]]:
        """Return the slots that came free since the last call, and those that were given up."""
        released: list[SlotId] = []
        given_up: list[SlotId] = []
        while self._released:
            slot = self._released.popleft()
            self._open.discard(slot)
            self.held_bytes -= self._segments[slot >> _PLACE_BITS][1]
            if slot in self._forked:
                self._forked.remove(slot)
                given_up.append(slot)
            else:
                released.append(slot)
        return released, given_up
