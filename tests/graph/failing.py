"""A source with broken records, and a plain model of what `on_error` makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import wholegrain as wg


class Broken:
    """Numbers, some of which cannot be read."""

    def __init__(self, length: int, broken: frozenset[int]) -> None:
        self._length, self._broken = length, broken

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if index in self._broken:
            raise OSError(f"record {index} is broken")
        return index


class BrokenBulk(Broken):
    """The same, read many at a time."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class FailsFor:
    """A function that fails for some elements."""

    def __init__(self, *bad: int) -> None:
        self._bad = frozenset(bad)

    def __call__(self, element: int) -> int:
        if element in self._bad:
            raise ValueError(f"cannot use {element}")
        return element


def minus_one(error: Exception, record: wg.FailedRecord) -> int:
    """Return what takes the place of a failed element."""
    assert record.index is not None
    return -1 - record.index


def with_workers(ds: Any, workers: Any) -> Any:
    """Run a pipeline in workers; 0 for none."""
    if workers == 0:
        return ds
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))


def plain(elements: Any) -> list[Any]:
    """Return elements that can be compared."""
    return [np.asarray(element).tolist() for element in elements]


def until_error(it: Any) -> tuple[list[Any], BaseException | None]:
    """Return the elements before the first error, and the error."""
    elements: list[Any] = []
    try:
        elements.extend(np.asarray(element).tolist() for element in it)
    except Exception as error:
        return elements, error
    return elements, None
