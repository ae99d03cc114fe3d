"""Elements on their way from a worker to the main process.

The arrays of an element travel in a slot of shared memory or, if they are small, in the message.
Its layout is sent once and named by a number. What is not an array is pickled; arrays in there
travel in the slot as well. An element of a batch of images is then a few dozen bytes:

    (layout 0, (slot 5,), pickle of [7])
"""

import pickle
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

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
"""Part of a block: the number of the block, the first byte, how many."""

Rest = bytes | tuple[bytes, list[Extent]] | None
"""What is not an array: the pickle, or the pickle and where the pieces lie that it left out."""

Record = tuple[int, tuple[Block, ...], Rest]
"""An element in a message: the number of its layout, its blocks, the rest."""

Arrived = tuple[Rebuilder, tuple[Block, ...], Rest]
"""An element in a message that has arrived, with the layout itself."""

INLINE_BYTES = 1 << 14
"""Smaller elements travel in the message: cheaper than looking after a slot."""

_OUT_OF_BAND_BYTES = 1 << 12
_MAX_LAYOUTS = 1024


class CannotSendError(TypeError):
    """An element cannot be moved to the main process."""


class Encoder:
    """The worker's side: turns elements into records.

    `empty` gives memory in a slot before there is an element, so that a batch can be stacked where
    it will be read. `encode` finds it there; `abandon` gives it back if no element came of it.

    Args:
        arena: Slots of shared memory; None to have all of an element in the message.
        inline_bytes: Elements of fewer bytes travel in the message.
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
        """Layouts, by number and pickled, that have to be sent before the next record."""
        self._slots: list[tuple[SlotId, Bytes]] = []
        self._filled = 0
        self._usual_size = 0
        self._placed: dict[int, tuple[Array, Location]] = {}

    @property
    def _arena(self) -> Arena:
        assert self._slots_of is not None
        return self._slots_of

    def give_back(self, released: Iterable[SlotId], given_up: Iterable[SlotId] = ()) -> None:
        """Take back slots that came free, and give up those that a fork may still see."""
        for slot in released:
            self._arena.give_back(slot)
        for slot in given_up:
            self._arena.give_up(slot)

    def discard(self, record: Record) -> None:
        """Take back the slots of a record that is not going to be sent."""
        self.give_back([block for block in record[1] if isinstance(block, int)])

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialised array, in shared memory if it is large enough for that."""
        dtype = np.dtype(dtype)
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        if nbytes < self._inline_bytes or dtype.hasobject:
            return np.empty(shape, dtype)
        nbytes = aligned(nbytes)
        if not self._slots or self._filled + nbytes > len(self._slots[-1][1]):
            # The arrays of a batch are asked for one by one: leave room as for the last batch.
            self._slots.append(self._arena.take(max(nbytes, self._usual_size)))
            self._usual_size = 0
            self._filled = 0
        array: Array = np.ndarray(shape, dtype, self._slots[-1][1], self._filled)
        self._placed[id(array)] = (array, (len(self._slots) - 1, self._filled))
        self._filled += nbytes
        return array

    def abandon(self) -> None:
        """Give back what `empty` handed out since the last element."""
        for slot, _ in self._slots:
            self._arena.give_back(slot)
        self._forget_placed()

    def _forget_placed(self) -> None:
        if self._slots:
            self._usual_size = sum([len(block) for _, block in self._slots[:-1]]) + self._filled
            self._slots = []
            self._placed = {}

    def encode(self, element: Any) -> tuple[Record, int]:
        """Return the record of `element`, and how many bytes it occupies.

        Raises:
            CannotSendError: If part of it cannot be pickled.
        """
        parts: list[Any] = []
        arrays: list[Array] = []
        others: list[Any] = []
        slot: SlotId | None = None
        try:
            flatten(element, parts, arrays, others)
            if self._slots:
                arrays = self._leave_placed(parts, arrays)
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
                    extents = _place(loose, size, len(self._slots))
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
        """Pickle what is not an array; return large pieces of it, which go to a block, apart.

        A large pickle is the first of these pieces, and what is returned as the pickle is empty.
        """
        try:
            pickled, apart = self._pickler.dumps(others, _OUT_OF_BAND_BYTES)
        except Exception as error:
            raise CannotSendError(_describe_failure(element, "element", error)) from error
        if len(pickled) >= self._inline_bytes:
            return b"", [memoryview(pickled), *apart]
        return pickled, apart

    def _leave_placed(self, parts: list[Any], arrays: list[Array]) -> list[Array]:
        """Note which arrays are in their place already; return those to be copied."""
        copied = []
        for array in arrays:
            # Where an array stands in an element twice, the second becomes an array of its own.
            _, place = self._placed.pop(id(array), (None, None))
            parts.append(place)
            if place is None:
                copied.append(array)
        parts.append(len(self._slots))
        return copied

    def _add_layout(self, key: Parts, copied: list[Array]) -> Packing:
        if len(self._packings) >= _MAX_LAYOUTS:
            self._packings.clear()  # Shapes that do not come again; those that do are sent again.
        # Used again when no record can be on its way that means the layout before.
        packing = Packing(self._next_number % (2 * _MAX_LAYOUTS), copied)
        self._next_number += 1
        count = count_arrays(key)
        parts: Parts = key
        noted: Parts = (None,) * count
        if self._slots:
            behind = len(key) - count - 1
            parts, noted = key[:behind], key[behind:-1]
        offsets = iter(packing.offsets)
        locations = tuple([place or (len(self._slots), next(offsets)) for place in noted])
        self.new_layouts.append((packing.number, dumps((parts, locations))))
        self._packings[key] = packing
        return packing


def _place(pieces: list[memoryview], start: int, block: int) -> list[Extent]:
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
        slots: The worker's slots; None where all of an element is in the message.
        budget: How many bytes of slots may be in the consumer's hands. What comes beyond is
            copied to ordinary memory, so that the worker's slots go on turning.
    """

    def __init__(self, slots: SlotViews | None, budget: int) -> None:
        self._slots_or_none = slots
        self._budget = budget
        self._layouts: dict[int, Rebuilder] = {}

    def receive(self, layouts: list[tuple[int, bytes]], records: list[Record]) -> list[Arrived]:
        """Learn the layouts of a message, and look up those that its records name.

        This is done when the message arrives: the worker uses a number again for another layout,
        and a record may wait for thousands of others before it is decoded.
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
        """Return the slots that came free, and those that a fork of this process may still see."""
        return ([], []) if self._slots_or_none is None else self._slots_or_none.take_released()

    def nbytes_of(self, record: Arrived) -> int:
        """Return about how much memory the element of a record takes."""
        _, blocks, rest = record
        nbytes = 256 + (len(rest) if isinstance(rest, bytes) else 0)
        for block in blocks:
            nbytes += self._slots.size_of(block) if isinstance(block, int) else len(block)
        return nbytes

    def discard(self, record: Arrived) -> None:
        """Let the slots of a record come free without looking at it."""
        for block in record[1]:
            if isinstance(block, int):
                self._slots.discard(block)

    def decode(self, record: Arrived) -> Any:
        """Return the element of a record. Its arrays are the caller's to write to."""
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
            return np.array(slot, subok=False)  # And the slot is free.
        return slot


def _unpickle(pickled: bytes, extents: list[Extent], blocks: list[Any]) -> list[Any]:
    pieces = [np.ndarray((length,), np.uint8, blocks[b], start) for b, start, length in extents]
    if not pickled:
        others: list[Any] = pickle.loads(pieces[0].data, buffers=pieces[1:])
    else:
        others = pickle.loads(pickled, buffers=pieces)
    return others
