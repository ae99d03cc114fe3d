"""How elements are sent from a worker to the main process.

The arrays of an element are sent in a slot of shared memory or, if they are small, in the message.
Its layout is sent once and then identified by a number. Everything that is not an array is pickled,
with large buffers in the slot too. The message for a batch of images is then a few dozen bytes:

    (layout 0, (slot 5,), pickle of [7])
"""

import pickle
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from wholegrain._core.interruption import is_interruption
from wholegrain._workers.layout import (
    Array,
    Bytes,
    Location,
    Packing,
    Parts,
    Rebuilder,
    aligned,
    count_arrays,
    flatten,
)
from wholegrain._workers.local.ring import Arena, SlotId, SlotViews
from wholegrain._workers.pickling import ReplyPickler, dumps, dumps_by_value

Block = SlotId | bytes
"""The number of a slot, or the bytes themselves."""

Extent = tuple[int, int, int]
"""Part of a block: the number of the block, the offset, and the length in bytes."""

Rest = bytes | tuple[bytes, list[Extent]] | None
"""The leaves that are not arrays: a pickle, or a pickle and the extents of its buffers."""

Record = tuple[int, tuple[Block, ...], Rest]
"""An element in a message: the number of its layout, its blocks, its other leaves."""

Arrived = tuple[Rebuilder, tuple[Block, ...], Rest]
"""An element in a received message, with the layout itself."""

INLINE_BYTES = 1 << 14
"""Smaller elements are sent in the message, which is cheaper than managing a slot."""

_OUT_OF_BAND_BYTES = 1 << 12
_MAX_LAYOUTS = 1024


class CannotSendError(TypeError):
    """An element cannot be sent to the main process."""


class Encoder:
    """The worker's side: turns elements into records.

    `empty` allocates memory in a slot before there is an element, so that a batch can be stacked
    where it will be read. `encode` recognises such arrays; `abandon` releases them if no element
    was made of them.

    Args:
        arena: Slots of shared memory; None to send whole elements in messages.
        inline_bytes: Elements of fewer bytes are sent in the message.
    """

    def __init__(self, arena: Arena | None, inline_bytes: int = INLINE_BYTES) -> None:
        self._slots_of = arena
        self._inline_bytes = sys.maxsize if arena is None else inline_bytes
        self._pickler = ReplyPickler()
        self._packings: dict[Parts, Packing] = {}
        self._last_parts: list[Any] = []
        self._last_packing = Packing(-1, [])
        self._next_number = 0
        self.new_layouts: deque[tuple[int, bytes]] = deque()
        """Numbers and pickles of layouts that have to be sent before the next record."""
        self._slots: list[tuple[SlotId, Bytes]] = []
        self._filled = 0
        self._usual_size = 0
        self._placed: dict[int, tuple[Array, Location]] = {}

    @property
    def _arena(self) -> Arena:
        assert self._slots_of is not None
        return self._slots_of

    def give_back(self, released: Iterable[SlotId], given_up: Iterable[SlotId] = ()) -> None:
        """Reuse released slots, and give up slots that a forked process may still see."""
        for slot in released:
            self._arena.give_back(slot)
        for slot in given_up:
            self._arena.give_up(slot)

    def discard(self, record: Record) -> None:
        """Release the slots of a record that will not be sent."""
        self.give_back([block for block in record[1] if isinstance(block, int)])

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialised array, in shared memory if it is large enough."""
        dtype = np.dtype(dtype)
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        if nbytes < self._inline_bytes or dtype.hasobject:
            return np.empty(shape, dtype)
        nbytes = aligned(nbytes)
        if not self._slots or self._filled + nbytes > len(self._slots[-1][1]):
            # The arrays of a batch are allocated one by one: reserve as much as the last one used.
            self._slots.append(self._arena.take(max(nbytes, self._usual_size)))
            self._usual_size = 0
            self._filled = 0
        array: Array = np.ndarray(shape, dtype, self._slots[-1][1], self._filled)
        self._placed[id(array)] = (array, (len(self._slots) - 1, self._filled))
        self._filled += nbytes
        return array

    def abandon(self) -> None:
        """Release what `empty` has allocated since the last element."""
        for slot, _ in self._slots:
            self._arena.give_back(slot)
        self._forget_placed()

    def _forget_placed(self) -> None:
        if self._slots:
            self._usual_size = sum([len(block) for _, block in self._slots[:-1]]) + self._filled
            self._slots = []
            self._placed = {}

    def encode(self, element: Any) -> tuple[Record, int]:
        """Return the record of `element`, and its size in bytes.

        Raises:
            CannotSendError: If part of the element cannot be pickled.
        """
        parts: list[Any] = []
        arrays: list[Array] = []
        others: list[Any] = []
        slot: SlotId | None = None
        try:
            flatten(element, parts, arrays, others)
            if self._slots:
                arrays = self._leave_in_slots(parts, arrays)
            if parts != self._last_parts:
                key = tuple(parts)
                self._last_packing = self._packings.get(key) or self._add_layout(key, arrays)
                self._last_parts = parts
            packing = self._last_packing
            rest: Rest = None
            loose: list[memoryview] = []
            size = packing.size
            if others:
                pickled, loose = self._pickle(others, element)
                rest = pickled
                if loose:
                    extents = _arrange(loose, size, len(self._slots))
                    rest = (pickled, extents)
                    size = extents[-1][1] + aligned(extents[-1][2])
            blocks: tuple[Block, ...] = tuple([number for number, _ in self._slots])
            if size >= self._inline_bytes:
                slot, block = self._arena.take(size)
                blocks += (slot,)
                packing.write(arrays, block)
                for data, (_, start, length) in zip(loose, extents if loose else (), strict=True):
                    block[start : start + length] = np.frombuffer(data, np.uint8)
            elif arrays or loose:
                inline = packing.join(arrays)
                if loose:
                    inline += b"".join([bytes(data).ljust(aligned(len(data))) for data in loose])
                blocks += (inline,)
        except BaseException:
            if slot is not None:
                self._arena.give_back(slot)
            self.abandon()
            raise
        size += sum([len(block) for _, block in self._slots])
        self._forget_placed()
        return (packing.number, blocks, rest), size

    def _pickle(self, others: list[Any], element: Any) -> tuple[bytes, list[memoryview]]:
        """Pickle the leaves that are not arrays; return large buffers out of band, for a block.

        If the pickle itself is large, it is the first of these buffers, and the first result is
        empty.
        """
        try:
            pickled, apart = self._pickler.dumps(others, _OUT_OF_BAND_BYTES)
        except Exception as error:
            if is_interruption(error):
                raise
            raise CannotSendError(_describe_failure(element, "element", error)) from error
        if len(pickled) >= self._inline_bytes:
            return b"", [memoryview(pickled), *apart]
        return pickled, apart

    def _leave_in_slots(self, parts: list[Any], arrays: list[Array]) -> list[Array]:
        """Record which arrays are in a slot already; return those that have to be copied."""
        copied = []
        for array in arrays:
            # If an array occurs twice in an element, the second occurrence is copied.
            _, location = self._placed.pop(id(array), (None, None))
            parts.append(location)
            if location is None:
                copied.append(array)
        parts.append(len(self._slots))
        return copied

    def _add_layout(self, key: Parts, copied: list[Array]) -> Packing:
        if len(self._packings) >= _MAX_LAYOUTS:
            self._packings.clear()  # Layouts that are still in use are sent again.
        # A number is reused only when no record in flight can refer to its previous layout.
        packing = Packing(self._next_number % (2 * _MAX_LAYOUTS), copied)
        self._next_number += 1
        count = count_arrays(key)
        parts: Parts = key
        noted: Parts = (None,) * count
        if self._slots:
            end = len(key) - count - 1
            parts, noted = key[:end], key[end:-1]
        offsets = iter(packing.offsets)
        locations = tuple([location or (len(self._slots), next(offsets)) for location in noted])
        self.new_layouts.append((packing.number, dumps((parts, locations))))
        self._packings[key] = packing
        return packing


def _arrange(pieces: list[memoryview], start: int, block: int) -> list[Extent]:
    extents = []
    for piece in pieces:
        extents.append((block, start, len(piece)))
        start += aligned(len(piece))
    return extents


def _describe_failure(value: Any, path: str, error: Exception) -> str:
    """Name the first part of an element that cannot be pickled."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(f"{path}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    for item_path, item in items:
        try:
            dumps_by_value(item)
        except Exception as item_error:
            if is_interruption(item_error):
                raise
            return _describe_failure(item, item_path, item_error)
    kind = type(value)
    return (
        f"A worker process made an element that cannot be sent to the main process: {path} is a"
        f" {kind.__module__}.{kind.__qualname__}, which cannot be pickled"
        f" ({type(error).__name__}: {error}). Return arrays, numbers, strings or other objects"
        " that can be pickled, or do this step in the main process."
    )


class Decoder:
    """The consumer's side: turns records into elements whose arrays view the slots.

    Args:
        slots: The worker's slots; None if messages carry whole elements.
        budget: If the consumer holds on to more than this many bytes of slots, later elements are
            copied out of shared memory, so that the worker can reuse its slots.
    """

    def __init__(self, slots: SlotViews | None, budget: int) -> None:
        self._slots_or_none = slots
        self._budget = budget
        self._layouts: dict[int, Rebuilder] = {}

    def receive(self, layouts: list[tuple[int, bytes]], records: list[Record]) -> list[Arrived]:
        """Store the layouts of a message, and resolve the layout numbers of its records.

        This has to happen when the message arrives: the worker reuses layout numbers, and a record
        may wait for thousands of others before it is decoded.
        """
        known = self._layouts
        for number, pickled in layouts:
            known[number] = Rebuilder(*pickle.loads(pickled))
        return [(known[number], blocks, rest) for number, blocks, rest in records]

    @property
    def _slots(self) -> SlotViews:
        assert self._slots_or_none is not None
        return self._slots_or_none

    def take_released(self) -> tuple[list[SlotId], list[SlotId]]:
        """Return the released slots, and those that a fork of this process may still see."""
        return ([], []) if self._slots_or_none is None else self._slots_or_none.take_released()

    def nbytes_of(self, record: Arrived) -> int:
        """Return approximately how many bytes the element of a record occupies."""
        _, blocks, rest = record
        nbytes = 256 + (len(rest) if isinstance(rest, bytes) else 0)
        for block in blocks:
            nbytes += self._slots.size_of(block) if isinstance(block, int) else len(block)
        return nbytes

    def discard(self, record: Arrived) -> None:
        """Release the slots of a record without decoding it."""
        for block in record[1]:
            if isinstance(block, int):
                self._slots.discard(block)

    def decode(self, record: Arrived) -> Any:
        """Return the element of a record. The caller may write to its arrays."""
        layout, numbers, rest = record
        blocks: list[Any] = [
            self._open(block) if isinstance(block, int) else bytearray(block) for block in numbers
        ]
        others: list[Any] = []
        if type(rest) is tuple:
            others = _unpickle(*rest, blocks)
        elif rest is not None:
            others = pickle.loads(rest)  # type: ignore[arg-type]
        return layout.build(blocks, others)

    def _open(self, number: SlotId) -> Bytes:
        slot = self._slots.open(number)
        if self._slots.held_bytes > self._budget:
            return np.array(slot, subok=False)  # The copy releases the slot at once.
        return slot


def _unpickle(pickled: bytes, extents: list[Extent], blocks: list[Any]) -> list[Any]:
    pieces = [np.ndarray((length,), np.uint8, blocks[b], start) for b, start, length in extents]
    if not pickled:
        others: list[Any] = pickle.loads(pieces[0].data, buffers=pieces[1:])
    else:
        others = pickle.loads(pickled, buffers=pieces)
    return others
