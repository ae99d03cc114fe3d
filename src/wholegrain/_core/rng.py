"""Random streams by position: seed and index in, numpy generator out, the same in every run.

The stream of an index is Philox with a key from the seed and the counter `[0, 0, op_seed, index]`.
Creating a generator takes tens of microseconds, and setting its state takes ten. Instead, one
generator is moved from index to index by writing the counter and the buffer position directly into
numpy's state struct, in a fraction of a microsecond. This is done only for numpy releases whose
struct layout is known, and after a check of that layout. With other releases, the state is set
through numpy's public API.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from wholegrain._core.interruption import is_interruption

_KNOWN_NUMPY = frozenset({"1.26", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5"})
"""Releases whose Philox state has the layout used below: a pointer to the counter, a pointer to the
key, and the buffer from byte 16 on. To add a release, run tests/equivalence with it."""

_COUNTER = struct.Struct("=QQQQ")
# The layout from `buffer_pos` on: the position, the unused buffer, and whether half a word is left.
_BUFFER = struct.Struct("=i4x32xi")
_BUFFER_OFFSET = 16
_EMPTY_BUFFER = 4

if TYPE_CHECKING:
    # `numpy.random` is slow to import, so it is imported on first use.
    from numpy.random import Generator, Philox

Move: TypeAlias = "Callable[[int], Generator]"
"""Moves a generator to the start of an index's stream, and returns it."""


def seed_from_words(words: Sequence[int]) -> int:
    """Mix `words` into one 32-bit seed."""
    return int(np.random.SeedSequence(list(words)).generate_state(1, dtype=np.uint32)[0])


class RngPool:
    """Reusable generators for the positions of a dataset.

    A generator for an index always starts at the beginning of the same stream. It is valid until
    it is released.

    Args:
        seed: Any non-negative integer.

    Example:
        >>> pool = RngPool(42)
        >>> rng = pool.acquire_rng(7)
        >>> rng.random()
        >>> pool.release_rng(rng)
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        # list.append and list.pop are atomic: no lock is needed.
        self._free: list[tuple[Generator, _MoveWithOp]] = []
        self._taken: dict[int, tuple[Generator, _MoveWithOp]] = {}

    def acquire_rng(self, index: int, *, op_seed: int = 0) -> Generator:
        """Return a generator at the start of the stream of `index`."""
        entry = self._take()
        self._taken[id(entry[0])] = entry
        return entry[1](index, op_seed)

    def release_rng(self, rng: Generator) -> None:
        """Return a generator to the pool, for use at another index."""
        self._free.append(self._taken.pop(id(rng)))

    def _take(self) -> tuple[Generator, _MoveWithOp]:
        try:
            return self._free.pop()
        except IndexError:
            return _new_generator(self._key)

    def lend(self) -> Lease:
        """Borrow a generator that can be moved from index to index, for one thread.

        Example:
            >>> with pool.lend() as move:
            ...     values = [move(index).random() for index in range(100)]
        """
        return Lease(self)

    def __getstate__(self) -> int:
        return self._seed

    def __setstate__(self, seed: int) -> None:
        self.__init__(seed)  # type: ignore[misc]


class Lease:
    """A generator borrowed from a pool, returned at the end of the `with` block."""

    def __init__(self, pool: RngPool) -> None:
        self._pool = pool

    def __enter__(self) -> Move:
        self._entry = self._pool._take()  # noqa: SLF001
        return self._entry[1]

    def __exit__(self, *exc_info: object) -> None:
        self._pool._free.append(self._entry)  # noqa: SLF001


_MoveWithOp: TypeAlias = "Callable[..., Generator]"


def _new_generator(key: Any) -> tuple[Generator, _MoveWithOp]:
    bits = np.random.Philox(key=key)
    generator = np.random.Generator(bits)
    move = _mover_by_memory if _memory_is_as_expected() else _mover_by_state
    return generator, move(generator, bits)


def _mover_by_memory(generator: Generator, bits: Philox) -> _MoveWithOp:
    address: int = bits.ctypes.state_address
    counter_address = ctypes.c_uint64.from_address(address).value
    counter = (ctypes.c_char * _COUNTER.size).from_address(counter_address)
    buffer = (ctypes.c_char * _BUFFER.size).from_address(address + _BUFFER_OFFSET)
    write_counter = _COUNTER.pack_into
    write_buffer = _BUFFER.pack_into

    def move(index: int, op_seed: int = 0) -> Generator:
        if index < 0:
            raise _negative_index(index)
        write_counter(counter, 0, 0, 0, op_seed, index)
        write_buffer(buffer, 0, _EMPTY_BUFFER, 0)
        return generator

    return move


def _mover_by_state(generator: Generator, bits: Philox) -> _MoveWithOp:
    state: Any = bits.state

    def move(index: int, op_seed: int = 0) -> Generator:
        if index < 0:
            raise _negative_index(index)
        state["state"]["counter"] = np.array([0, 0, op_seed, index], dtype=np.uint64)
        state["buffer_pos"] = _EMPTY_BUFFER
        state["has_uint32"] = 0
        bits.state = state
        return generator

    return move


def _negative_index(index: int) -> OverflowError:
    return OverflowError(
        f"Random numbers belong to positions from 0 on, but got index {index}."
        " Negative indices address epochs before the first one, which have none."
    )


def _memory_is_known(numpy_version: str) -> bool:
    release = ".".join(numpy_version.split(".")[:2])
    return release in _KNOWN_NUMPY and sys.maxsize == 2**63 - 1


@functools.cache
def _memory_is_as_expected() -> bool:
    """Return whether the state struct has the layout that `_mover_by_memory` writes to.

    With an unknown numpy release the struct is not even read, because an address in it may be
    anything. With a known one, a spare generator is used to verify the layout.
    """
    if not _memory_is_known(np.__version__):
        return False
    try:
        bits = np.random.Philox(key=7, counter=[1, 2, 3, 4])
        generator = np.random.Generator(bits)
        generator.integers(0, 10, dtype=np.uint32)  # This leaves half a word in the buffer.
        address: int = bits.ctypes.state_address
        counter_address = ctypes.c_uint64.from_address(address).value
        counter = bytes((ctypes.c_char * _COUNTER.size).from_address(counter_address))
        if _COUNTER.unpack(counter) != (2, 2, 3, 4):
            return False
        tail = bytes((ctypes.c_char * _BUFFER.size).from_address(address + _BUFFER_OFFSET))
        if _BUFFER.unpack(tail) != (1, 1):
            return False
        moved = _mover_by_memory(generator, bits)(11, 5)
        expected = np.random.Generator(np.random.Philox(key=7, counter=[0, 0, 5, 11]))
        return bool(np.array_equal(moved.integers(0, 99, 9), expected.integers(0, 99, 9)))
    except Exception as error:
        if is_interruption(error):
            raise
        return False
