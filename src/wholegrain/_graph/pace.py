"""How many elements to take at a time, if they can be put back."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.elements import nbytes
from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator

CHUNK_S = 1e-3
"""How long taking a chunk may take: user functions run ahead of the consumer by this much."""

LARGEST_CHUNK = 128
"""Larger chunks save nothing, and would take long if elements suddenly became slow."""

CHUNK_BYTES = 1 << 18
"""How much memory a chunk may take."""

_LOOKS = 32
"""How many neighbours to compare, before elements that share an object are taken one by one."""

_IMMUTABLE = frozenset({int, float, bool, complex, str, bytes, type(None), tuple, range})


class Pace:
    """Chooses the size of the next chunk by the time and the memory that the last one took.

    Args:
        share: How many iterators share the limits of one chunk.

    Attributes:
        count: The size of the next chunk.
    """

    __slots__ = ("_last", "_looks", "_most", "_share", "count")

    def __init__(self, share: int = 1) -> None:
        self.count = 1
        # The last element of each iterator, until one differs from the next.
        self._last: dict[int, Any] | None = {}
        self._looks = _LOOKS
        self._share = max(1, share)
        self._most = max(1, LARGEST_CHUNK // self._share)

    def take(self, iterator: DatasetIterator[T], count: int) -> list[T]:
        """Take a chunk of `count` elements from an iterator, and choose the size of the next."""
        began = time.perf_counter()
        elements = iterator.take(count)
        self.note(iterator, elements, count, began)
        return elements

    def note(self, iterator: Any, elements: Sequence[Any], count: int, began: float) -> None:
        """Choose the size of the next chunk, after one of `count` elements was asked for."""
        seconds = (time.perf_counter() - began) * self._share
        if seconds > CHUNK_S:
            self.count = max(1, int(len(elements) * CHUNK_S / seconds))
        elif elements and count < self._most and seconds < CHUNK_S / 4:
            if self._last is not None and self._may_be_reused(iterator, elements[-1]):
                return
            if 4 * count * self._share * nbytes(elements[0]) > CHUNK_BYTES:
                self._most = count
            else:
                self.count = max(self.count, min(4 * count, self._most))

    def _may_be_reused(self, iterator: Any, element: Any) -> bool:
        """Return whether elements may share memory that the next one overwrites.

        A function may return the same array for each element, which is right as long as the
        consumer gets one at a time. So chunks grow only after two elements that have no array or
        other mutable object in common. Some may: a flat map may return an element twice.
        """
        assert self._last is not None
        mutable = _mutable_parts(element)
        last = self._last.get(id(iterator))
        if mutable and (last is None or mutable & _mutable_parts(last)):
            self._last[id(iterator)] = element
            self._looks -= last is not None
            if self._looks:
                return True
            self._most = 1
        self._last = None
        return self._most == 1


class Inputs:
    """Takes chunks from a parent whose elements may be one object that it changes each time."""

    __slots__ = ("_last", "_looks", "_most")

    def __init__(self) -> None:
        self._most = 1  # Until two neighbours differ.
        self._last: list[Any] | None = []
        self._looks = _LOOKS

    def take(self, parent: DatasetIterator[T], count: int) -> list[T]:
        """Take up to `count` elements; one at a time if they share an array or another object."""
        if self._last is None:
            return parent.take(min(count, self._most))
        elements = parent.take(1)
        if elements:
            self._compare(elements[0])
        return elements

    def _compare(self, element: Any) -> None:
        assert self._last is not None
        mutable = _mutable_parts(element)
        if mutable and (not self._last or mutable & _mutable_parts(self._last[0])):
            self._looks -= len(self._last)
            self._last = [element] if self._looks else None
        else:
            self._most, self._last = sys.maxsize, None


def _mutable_parts(element: Any) -> set[int]:
    """Return the ids of an element's mutable objects, at most one level deep."""
    if isinstance(element, dict):
        parts = [element, *element.values()]
    elif isinstance(element, (list, tuple)):
        parts = [element, *element]
    else:
        parts = [element]
    return {id(part) for part in parts if not _is_immutable(part)}


def _is_immutable(part: Any) -> bool:
    kind = type(part)
    if kind in _IMMUTABLE or issubclass(kind, np.generic):
        return True
    return kind is np.ndarray and not part.flags.writeable and part.base is None
