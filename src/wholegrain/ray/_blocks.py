"""Blocks of memory that large elements travel in, through Ray's object store.

An actor stacks a batch in a block of its own memory. Ray copies the block into the object store
when the actor returns it, and the consumer views it there, or copies it out.
"""

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from wholegrain._core.types import NDArray
from wholegrain._workers.transport import Encoder, Record

Bytes = NDArray[np.uint8]

_SPARE_BYTES = 1 << 28


class BlockArena:
    """The actor's side: allocates blocks, and reuses those that the consumer has received.

    It replaces the arena of shared memory that local workers have.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._used: dict[int, Bytes] = {}
        self._free: dict[int, list[Bytes]] = {}
        self._free_bytes = 0
        self._adopted: set[int] = set()

    def take(self, nbytes: int) -> tuple[int, Bytes]:
        """Return a block and its number. It is in use until `give_back`."""
        free = self._free.get(nbytes)
        if free:
            block = free.pop()
            self._free_bytes -= nbytes
        else:
            block = np.empty(nbytes, np.uint8)
        number = next(self._numbers)
        self._used[number] = block
        return number, block

    def adopt(self, block: Bytes) -> int:
        """Return a number for memory that is not the arena's, and that nobody can change."""
        number = next(self._numbers)
        self._used[number] = block
        self._adopted.add(number)
        return number

    def view(self, number: int) -> Bytes:
        """Return a block that is in use."""
        return self._used[number]

    def give_back(self, number: int) -> None:
        """Reuse a block. New memory would page-fault."""
        block = self._used.pop(number)
        if number in self._adopted:
            self._adopted.remove(number)
            return
        if self._free_bytes + len(block) > _SPARE_BYTES:
            self._free.clear()
            self._free_bytes = 0
        if len(block) <= _SPARE_BYTES:
            self._free.setdefault(len(block), []).append(block)
            self._free_bytes += len(block)

    def give_up(self, number: int) -> None:
        """Release a block without reusing it."""
        del self._used[number]
        self._adopted.discard(number)


class BlockEncoder(Encoder):
    """Encodes elements for blocks. Arrays that nobody can change are not copied.

    Such are the arrays of the pipeline itself, because they are in Ray's object store.

    Args:
        arena: Allocates blocks.
        inline_bytes: Elements of fewer bytes are sent in the message.
    """

    def __init__(self, arena: BlockArena, inline_bytes: int) -> None:
        like_shared_memory: Any = arena
        super().__init__(like_shared_memory, inline_bytes)
        self._blocks = arena

    def encode(self, element: Any) -> tuple[Record, int]:
        if not self._slots:  # Otherwise the batch was stacked in a block.
            values = element.values() if type(element) is dict else (element,)
            for value in values:
                if type(value) is np.ndarray and value.nbytes >= self._inline_bytes:
                    self._leave_in_place(value)
        return super().encode(element)

    def _leave_in_place(self, array: Any) -> None:
        if array.flags.c_contiguous and not array.dtype.hasobject and is_immutable(array):
            block: Bytes = np.ndarray((array.nbytes,), np.uint8, array)
            self._placed[id(array)] = (array, (len(self._slots), 0))
            self._slots.append((self._blocks.adopt(block), block))
            self._filled = len(block)


def is_immutable(array: Any) -> bool:
    """Return whether nobody can change the memory of an array, through whatever view of it."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    if array is None:
        return False  # Its owner can make it writable again.
    try:
        return memoryview(array).readonly
    except TypeError:
        return False


class BlockViews:
    """The consumer's side: blocks that have arrived, until their elements are handed out."""

    held_bytes = 0
    """What consumers hold takes no memory of the actor."""

    def __init__(self) -> None:
        self._blocks: dict[int, Bytes] = {}
        self._released: deque[int] = deque()

    def add(self, blocks: Mapping[int, Bytes]) -> None:
        """Store the blocks of a message."""
        self._blocks.update(blocks)

    def open(self, number: int) -> Bytes:
        """Return a block, and release it in the actor."""
        self._released.append(number)
        return self._blocks.pop(number)

    def size_of(self, number: int) -> int:
        """Return the size of a block in bytes."""
        return len(self._blocks[number])

    def discard(self, number: int) -> None:
        """Release a block that is not needed."""
        self.open(number)

    def take_released(self) -> tuple[list[int], list[int]]:
        """Return the numbers of the blocks that were released since the last call."""
        return [self._released.popleft() for _ in range(len(self._released))], []


def copied(blocks: Mapping[int, Any]) -> dict[int, Bytes]:
    """Return writable copies of blocks. Copying does not hold the GIL."""
    copies = {}
    for number, block in blocks.items():
        copy = np.empty(len(block), np.uint8)
        np.copyto(copy, block)
        copies[number] = copy
    return copies
