"""Slots: blocks of shared memory that a worker fills, the consumer views, and the worker reuses.

Writing to memory that was touched before runs at the speed of memcpy; page faults on first touch
make it ten times slower. So slots are reused. A slot returns to its worker only when the last
array that views it is gone: arrays, slices of slices, memoryviews and jax arrays all keep a
reference to the slot through their base.
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
"""The segment's number, and the slot's index in it in the lowest `_INDEX_BITS` bits."""

_INDEX_BITS = 20
_PAGE = 4096
_SMALLEST = 1 << 14
_SMALL_SEGMENT = 1 << 21
_LARGEST_SEGMENT = 1 << 28
# Free memory that a worker keeps in addition to twice the memory in use.
_SPARE = 1 << 26
_MAX_UNSEEN = 16


def slot_size(nbytes: int) -> int:
    """Return the size class of `nbytes`. There are eight classes per doubling to waste little."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = max(1 << ((nbytes - 1).bit_length() - 4), _PAGE)
    return -(-nbytes // step) * step


class _Segment:
    """Slots of one size in one block of shared memory."""

    __slots__ = ("free", "fresh", "given_up", "memory", "number", "size", "slots")

    def __init__(self, number: int, memory: mmap.mmap, size: int, count: int) -> None:
        self.number = number
        self.memory = memory
        self.size = size
        self.slots: list[Bytes] = [
            np.ndarray((size,), np.uint8, memory, index * size) for index in range(count)
        ]
        self.free = count
        self.fresh = set(range(count))
        self.given_up = 0


class Arena:
    """The worker's side: allocates slots, and creates more of them when none is free.

    Args:
        kind: The kind of shared memory to use.
        name: The prefix of the names of segments, if they have names.
        announce: Called with the number, slot size, slot count and handle of a new segment before
            any of its slots is used. Takes ownership of the handle.
        retire: Called with the number of a segment that is no longer used.
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
        """Allocate a slot of at least `nbytes`, which belongs to the caller until `give_back`."""
        size = slot_size(nbytes)
        free = self._free.get(size)
        if not free:
            free = self._grow(size)
        slot = free.pop()  # The slot released last is most likely still in the CPU cache.
        segment = self._segments[slot >> _INDEX_BITS]
        index = slot & ((1 << _INDEX_BITS) - 1)
        segment.free -= 1
        self._free_bytes -= size
        self._used_bytes += size
        if index in segment.fresh:
            segment.fresh.remove(index)
            memory.populate(segment.memory, index * size, nbytes)
        return slot, segment.slots[index]

    def give_back(self, slot: SlotId) -> None:
        """Release a slot for the next element."""
        segment = self._segments[slot >> _INDEX_BITS]
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
        """Never reuse a slot, because a fork of the consumer may still see it.

        The other slots of its segment are not reused either. When none of them is in use any more,
        the segment is unmapped; the system keeps it as long as any process has it mapped.
        """
        segment = self._segments[slot >> _INDEX_BITS]
        if not segment.given_up:
            self._keep_from_use(segment)
        segment.given_up += 1
        self._used_bytes -= segment.size
        self._drop_if_unused(segment)

    def _keep_from_use(self, segment: _Segment) -> None:
        free = self._free[segment.size]
        self._free[segment.size] = [s for s in free if s >> _INDEX_BITS != segment.number]
        self._free_bytes -= segment.size * segment.free

    def _drop_if_unused(self, segment: _Segment) -> None:
        if segment.free + segment.given_up == len(segment.slots):
            del self._segments[segment.number]
            self._retire(segment.number)

    def _grow(self, size: int) -> list[SlotId]:
        # Grow by half, so that the number of segments, which may need a descriptor each, stays
        # small.
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
        free.extend((number << _INDEX_BITS) + index for index in reversed(range(count)))
        return free

    def forget_names(self) -> None:
        """Remove names that the consumer has not removed. Called when the consumer is gone."""
        if self._kind == "named":
            for number in range(self._next_number):
                memory.forget(_segment_name(self._name, number))

    def _shrink(self, segment: _Segment) -> None:
        """Return unused segments to the system, for example of sizes that occurred only once."""
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

    It is deleted after the last of these arrays, and then adds the slot to `released`.
    """

    # Set only on the base array. Slices have the same class but do not release the slot.
    released: "deque[SlotId] | None" = None
    number: SlotId = -1

    def __del__(self) -> None:
        # Garbage collection may run this at any point of any thread, so it only appends to a deque.
        if self.released is not None:
            self.released.append(self.number)


class SlotViews:
    """The consumer's side: views of a worker's slots, and the slots that were released.

    A fork of the consumer's process keeps seeing the slots that were open at the time of the fork,
    even after the consumer has released them. Those slots are given up, and never written again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_number = 0
        self._segments: dict[int, tuple[mmap.mmap, int]] = {}
        self._released: deque[SlotId] = deque()
        self._open: set[SlotId] = set()
        self._forked: set[SlotId] = set()
        self.held_bytes = 0
        """The size of all slots that the consumer holds."""
        forks.call_in_parent(self, SlotViews._note_fork)

    def _note_fork(self) -> None:
        self._forked |= self._open

    def add(self, number: int, size: int, count: int, handle: memory.Handle) -> None:
        """Map a segment that the worker announced."""
        self._segments[number] = (memory.attach(handle, size * count), size)
        self._next_number = number + 1
        memory.forget(handle)

    def forget_names(self) -> None:
        """Remove names of segments that the worker created but did not announce before it died."""
        for number in range(self._next_number, self._next_number + _MAX_UNSEEN):
            memory.forget(_segment_name(self._name, number))

    def remove(self, number: int) -> None:
        """Unmap a segment that the worker no longer uses."""
        del self._segments[number]

    def open(self, slot: SlotId) -> Slot:
        """Return the bytes of a slot. It is released when no array views them any more."""
        shared, size = self._segments[slot >> _INDEX_BITS]
        offset = (slot & ((1 << _INDEX_BITS) - 1)) * size
        view = np.ndarray.__new__(Slot, (size,), np.uint8, shared, offset)
        view.released = self._released
        view.number = slot
        self._open.add(slot)
        self.held_bytes += size
        return view

    def size_of(self, slot: SlotId) -> int:
        """Return the size of a slot in bytes."""
        return self._segments[slot >> _INDEX_BITS][1]

    def discard(self, slot: SlotId) -> None:
        """Release a slot that was never opened."""
        self.held_bytes += self._segments[slot >> _INDEX_BITS][1]
        self._released.append(slot)

    def take_released(self) -> tuple[list[SlotId], list[SlotId]]:
        """Return the slots released since the last call: reusable ones, and those given up."""
        released: list[SlotId] = []
        given_up: list[SlotId] = []
        while self._released:
            slot = self._released.popleft()
            self._open.discard(slot)
            self.held_bytes -= self._segments[slot >> _INDEX_BITS][1]
            if slot in self._forked:
                self._forked.remove(slot)
                given_up.append(slot)
            else:
                released.append(slot)
        return released, given_up
