"""Weights of a mixture that change while it is read.

A schedule is passed to `mix` instead of weights. It is part of the pipeline, so every run and every
restored run changes its weights at the same elements.

Example:
    >>> weights = schedule.steps({0: {"web": 3, "code": 1}, 10_000: {"web": 1, "code": 1}})
    >>> ds = IterDataset.mix({"web": web, "code": code}, weights)
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from wholegrain._core.names import kind_of
from wholegrain._core.whole_number import whole_count

Weights: TypeAlias = Mapping[str, float] | Sequence[float]
"""One number per component: by name, or in the order of the components."""

By: TypeAlias = Literal["step", "tokens"]


class Schedule:
    """Weights that hold from certain points on. `steps` and `linear` make schedules.

    Args:
        points: From where on weights hold, and the weights. The first point is 0.
        by: What a point counts. "step": elements of the mixture. "tokens": what the mixture's
            `unit` counts.

    Attributes:
        starts: From where on each of the `weights` holds, in increasing order.
        weights: The weights.
        by: What `starts` counts.
    """

    def __init__(self, points: Mapping[int, Weights], by: By = "step") -> None:
        if by not in ("step", "tokens"):
            raise ValueError(f'A schedule is by "step" or by "tokens", but got by={by!r}.')
        given: Any = points
        if not isinstance(given, Mapping) or not given:
            raise TypeError(
                "A schedule needs a mapping from steps to weights, such as"
                f' {{0: {{"web": 3, "code": 1}}}}, but got {kind_of(points)}.'
            )
        self.by: By = by
        self.starts = tuple(sorted(whole_count("step", start) for start in points))
        self.weights = tuple(points[start] for start in self.starts)
        if self.starts[0]:
            raise ValueError(
                f"A schedule needs the weights at 0, but its first point is {self.starts[0]}."
            )
        names = [_names(weights) for weights in self.weights]
        for start, found in zip(self.starts, names, strict=True):
            if found != names[0]:
                raise ValueError(
                    "A schedule needs a weight for the same components at each point, but at 0 it"
                    f" has {_shown(names[0])}, and at {start} it has {_shown(found)}. A weight may"
                    " be 0."
                )

    def piece_at(self, position: int) -> int:
        """Return the number of the weights that hold at `position`."""
        return bisect.bisect_right(self.starts, position) - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        points = dict(zip(self.starts, self.weights, strict=True))
        return f"schedule.Schedule({points}, by={self.by!r})"


def _names(weights: Any) -> Any:
    if isinstance(weights, Mapping):
        return frozenset(weights)
    if isinstance(weights, Sequence) and not isinstance(weights, str):
        return len(weights)
    raise TypeError(
        f"The weights in a schedule are a mapping or a list, but got {kind_of(weights)}."
    )


def _shown(names: Any) -> str:
    return f"{names} weights" if isinstance(names, int) else str(sorted(names))


def steps(points: Mapping[int, Weights], *, by: By = "step") -> Schedule:
    """Return a schedule whose weights change at once at each point.

    Args:
        points: The weights from 0 on, and from each later point on.
        by: What a point counts: elements of the mixture, or tokens.

    Example:
        >>> steps({0: {"web": 3, "code": 1}, 10_000: {"web": 1, "code": 1}})
    """
    return Schedule(points, by)


def linear(points: Mapping[int, Weights], *, by: By = "step", pieces: int = 100) -> Schedule:
    """Return a schedule whose shares change evenly from each point to the next.

    After the last point its weights stay.

    Args:
        points: The weights at 0 and at later points.
        by: What a point counts: elements of the mixture, or tokens.
        pieces: In how many equal steps the shares change between two points.

    Example:
        >>> linear({0: {"web": 1, "code": 0}, 10_000: {"web": 1, "code": 1}})
    """
    pieces = whole_count("pieces", pieces)
    if pieces < 1:
        raise ValueError(f"`linear` needs at least one piece, but got pieces={pieces}.")
    given = Schedule(points, by)
    changing: dict[int, Weights] = {}
    ends = [*zip(given.starts, given.weights, strict=True)]
    for (start, first), (stop, last) in itertools.pairwise(ends):
        count = min(pieces, stop - start)
        for piece in range(count):
            # The middle of a piece, so that the average over all pieces is exact.
            part = (2 * piece + 1) / (2 * count)
            changing[start + (stop - start) * piece // count] = _between(first, last, part)
    changing[ends[-1][0]] = ends[-1][1]
    return Schedule(changing, by)


def _between(first: Weights, last: Weights, part: float) -> Weights:
    """Return the shares at a part of the way from the first weights to the last."""
    if isinstance(first, Mapping) and isinstance(last, Mapping):
        names = list(first)
        shares = _between([first[name] for name in names], [last[name] for name in names], part)
        assert isinstance(shares, list)
        return dict(zip(names, shares, strict=True))
    before, after = _shares(first), _shares(last)
    return [(1 - part) * a + part * b for a, b in zip(before, after, strict=True)]


def _shares(weights: Any) -> list[float]:
    total = math.fsum(weights)
    if not total > 0:
        raise ValueError(f"At least one weight has to be positive, but got {weights}.")
    return [weight / total for weight in weights]
