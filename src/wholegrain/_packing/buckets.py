"""Buckets: elements held by length, until there are enough for a batch."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wholegrain._core.whole_number import whole_number

Remainder = Literal["drop", "keep", "pad"]


@dataclass(frozen=True)
class BucketPlan:
    """The validated arguments of `bucket`.

    Args:
        length: Returns the length of an element.
        boundaries: The largest length of each bucket, in increasing order.
        batch_sizes: How many elements of each bucket make a batch, on all hosts together.
        pad_value: The value of empty cells.
        pad_to_boundary: Whether rows are padded to the boundary, not to the longest of the batch.
        remainder: What becomes of elements that are left at the end.
    """

    length: Callable[[Any], int]
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    pad_value: Any
    pad_to_boundary: bool
    remainder: Remainder

    def bucket_of(self, length: int) -> int:
        """Return the bucket for a length."""
        at = bisect.bisect_left(self.boundaries, length)
        if at == len(self.boundaries):
            raise ValueError(
                f"An element has length {length}, but the last boundary of `bucket` is"
                f" {self.boundaries[-1]}. Truncate or filter long elements first, or add a"
                " boundary."
            )
        return at


def plan_buckets(
    length: Any,
    boundaries: Any,
    batch_sizes: Any,
    budget: Any,
    pad_value: Any,
    pad_to_boundary: bool,
    remainder: Any,
    hosts: int,
) -> BucketPlan:
    """Return the plan of `bucket`; raise if an argument is wrong."""
    limits = tuple(whole_number("boundary", boundary) for boundary in boundaries)
    if not limits or limits[0] < 1 or any(a >= b for a, b in itertools.pairwise(limits)):
        raise ValueError(
            f"`boundaries` are increasing positive lengths, such as [128, 512], but got {limits}."
        )
    if remainder not in ("drop", "keep", "pad"):
        raise ValueError(f'`remainder` is "drop", "keep" or "pad", but got {remainder!r}.')
    if (batch_sizes is None) == (budget is None):
        raise ValueError(
            "`bucket` needs either `batch_sizes`, one for each boundary, or `budget`, the number of"
            " cells of a batch."
        )
    return BucketPlan(
        length=_length_function(length),
        boundaries=limits,
        batch_sizes=_sizes(limits, batch_sizes, budget, hosts),
        pad_value=pad_value,
        pad_to_boundary=pad_to_boundary,
        remainder=remainder,
    )


def _sizes(limits: Sequence[int], batch_sizes: Any, budget: Any, hosts: int) -> tuple[int, ...]:
    if batch_sizes is not None:
        given = [batch_sizes] * len(limits) if isinstance(batch_sizes, int) else list(batch_sizes)
        sizes = tuple(whole_number("batch size", size) for size in given)
        if len(sizes) != len(limits) or min(sizes) < 1:
            raise ValueError(
                f"`batch_sizes` has a positive number for each of the {len(limits)} boundaries, but"
                f" got {sizes}."
            )
        uneven = [size for size in sizes if size % hosts]
        if uneven:
            raise ValueError(
                "A batch is shared out to the hosts evenly, but a batch size of"
                f" {uneven[0]} is not a multiple of shard_count={hosts}."
            )
        return sizes
    cells = whole_number("budget", budget)
    sizes = tuple(cells // limit // hosts * hosts for limit in limits)
    if min(sizes) < 1:
        raise ValueError(
            f"budget={cells} has no room for a row of {limits[-1]} cells on each of"
            f" {hosts} hosts. It has to be at least {limits[-1] * hosts}."
        )
    return sizes


def _length_function(length: Any) -> Callable[[Any], int]:
    if callable(length):
        return length  # type: ignore[no-any-return]
    return _LengthOf(length)


class _LengthOf:
    """The length of a feature of an element."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def __call__(self, element: Any) -> int:
        return len(element[self._key])


class Buckets:
    """Elements held in buckets, in the order in which they came.

    Args:
        plan: The buckets.
    """

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        count = len(plan.boundaries)
        self._held: list[list[tuple[int, Any, int]]] = [[] for _ in range(count)]
        self.arrived = [0] * count
        self.emitted = [0] * count

    def add(self, number: int, element: Any, skip: Sequence[int] = ()) -> int | None:
        """Hold an element; return its bucket if that is full now.

        Args:
            number: The number of the element in the stream.
            element: The element.
            skip: How many elements of each bucket were returned before, and are not held.
        """
        plan = self._plan
        length = whole_number("length", plan.length(element))
        bucket = plan.bucket_of(length)
        self.arrived[bucket] += 1
        if skip and self.arrived[bucket] <= skip[bucket]:
            return None
        self._held[bucket].append((number, element, length))
        return bucket if len(self._held[bucket]) == plan.batch_sizes[bucket] else None

    def take(self, bucket: int) -> list[tuple[int, Any, int]]:
        """Return and remove the elements of a bucket."""
        held, self._held[bucket] = self._held[bucket], []
        self.emitted[bucket] += len(held)
        return held

    def next_rest(self) -> int | None:
        """Return the first bucket that is not empty."""
        return next((at for at, held in enumerate(self._held) if held), None)

    @property
    def oldest(self) -> float:
        """The number of the oldest element that is held."""
        return min((held[0][0] for held in self._held if held), default=math.inf)
