"""Origins: which records an element was made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import NDArray


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """A record that an element, or a part of it, was made from.

    Args:
        source: The name of the source: that of `ds.named(...)`, else its label in `repr(ds)`. If
            several sources have the same label, the later ones are numbered.
        path: The file that has the record, if the source knows it.
        index: The number of the record in the source; in its file if the files are read in order.
        epoch: How often the source had been read completely before.
        row: The row of the batch, if the element is one. If batches were batched again, it counts
            the rows of all of them.
        span: The first cell of a packed row that comes from the record, and the one after the last.
        feature: The feature that `span` refers to; features with the same spans share an origin.
        path_index: The number of the record in the file `path`.
    """

    source: str
    path: str | None
    index: int
    epoch: int = 0
    row: int | None = None
    span: tuple[int, int] | None = None
    feature: str | None = None
    path_index: int | None = None


Origins = tuple[Origin, ...]


class Traced:
    """An element together with its origins.

    Args:
        value: The element.
        origins: Where it comes from.
        rows: How many rows it has, if it is a batch.
    """

    __slots__ = ("origins", "rows", "value")

    def __init__(self, value: Any, origins: Origins, rows: int | None = None) -> None:
        self.value = value
        self.origins = origins
        self.rows = rows

    def but(self, value: Any) -> Traced:
        """Return another element with the same origins."""
        return Traced(value, self.origins, self.rows)


class TracedCall:
    """A user's function, applied to the value of a traced element.

    Args:
        function: The function.
        position: Which of its arguments is the element.
    """

    def __init__(self, function: Callable[..., Any], position: int = 0) -> None:
        self._function = function
        self._position = position

    def __call__(self, *arguments: Any) -> Any:
        traced = arguments[self._position]
        given = list(arguments)
        given[self._position] = traced.value
        value = self._function(*given)
        return None if value is None else traced.but(value)


class TracedTest:
    """A user's filter, applied to the value of a traced element."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, traced: Traced) -> Any:
        return self._function(traced.value)


class TracedFlatMap:
    """A user's flat map, applied to the value of a traced element."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform
        self.max_fan_out: int = getattr(transform, "max_fan_out", 1)

    def flat_map(self, element: Traced) -> list[Traced]:
        """Return the parts of an element, with its origins."""
        return [element.but(part) for part in self._transform.flat_map(element.value)]


class TracedBatch:
    """A batch function, applied to the values of traced elements. Origins get rows."""

    def __init__(self, batch_fn: Callable[[Sequence[Any]], Any]) -> None:
        self._batch_fn = batch_fn

    def __call__(self, members: Sequence[Traced]) -> Traced:
        value = self._batch_fn([member.value for member in members])
        return in_rows(value, [(member.origins, member.rows or 1) for member in members])


def in_rows(value: Any, members: Sequence[tuple[Origins, int]]) -> Traced:
    """Return a batch of members, each given by its origins and the number of its own rows."""
    origins: list[Origin] = []
    first = 0
    for own, rows in members:
        origins += [dataclasses.replace(origin, row=first + (origin.row or 0)) for origin in own]
        first += rows
    return Traced(value, tuple(origins), first)


def split_rows(batch: Traced, rows: int) -> tuple[Any, NDArray[Any]]:
    """Return a batch, and an array that has for each of its rows the origins and their rows.

    The array is cut and joined with the batch; `join_rows` then returns the new batch.
    """
    inside = (batch.rows or rows) // rows  # The rows of a row, if batches were batched.
    origins: list[Origins] = [()] * rows
    for origin in batch.origins:
        row, within = divmod(origin.row or 0, inside)
        origins[row] += (dataclasses.replace(origin, row=within if inside > 1 else None),)
    members: NDArray[Any] = np.empty(rows, object)
    members[:] = [(own, inside) for own in origins]
    return batch.value, members


def join_rows(batch: tuple[Any, NDArray[Any]]) -> Traced:
    """Return a batch with the origins of the rows that it was made of."""
    value, members = batch
    return in_rows(value, members.tolist())


def joined(members: Sequence[Traced | None]) -> Traced:
    """Return a tuple of elements, with the origins of all of them."""
    values = tuple(None if member is None else member.value for member in members)
    found = [member for member in members if member is not None]
    origins = dict.fromkeys(origin for member in found for origin in member.origins)
    rows = {member.rows for member in found}
    return Traced(values, tuple(origins), rows.pop() if len(rows) == 1 else None)


def spans_of(segments: dict[str, NDArray[Any]], members: Sequence[Origins]) -> Origins:
    """Return the origins of a packed row.

    Args:
        segments: For each feature, which member each cell comes from, counted from 1; 0 is padding.
        members: The origins of each member.
    """
    found: list[Origin] = []
    for number, own in enumerate(members, 1):
        spans: dict[tuple[int, int], str] = {}
        for feature, cells in segments.items():
            here = np.flatnonzero(cells == number)
            if len(here):
                spans.setdefault((int(here[0]), int(here[-1]) + 1), feature)
        for span, feature in spans.items():
            found += [dataclasses.replace(one, span=span, feature=feature) for one in own]
        if not spans:  # A record without any cells.
            found += own
    return tuple(found)
