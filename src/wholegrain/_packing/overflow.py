"""What becomes of elements that are longer than a packed row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from wholegrain import transforms
from wholegrain._core.types import NDArray
from wholegrain._packing.features import Feature, PackingPlan

Overflow = Literal["split", "truncate", "drop", "error"]


def fitting(parent: Any, plan: PackingPlan, overflow: Any) -> Any:
    """Return a dataset whose elements fit into a row; with "error", the parent itself."""
    if overflow == "error":
        return parent
    if overflow == "truncate":
        return parent.map(_Truncate(plan.features))
    if overflow == "drop":
        return parent.filter(_Fits(plan.features))
    if overflow == "split":
        return parent.apply(_Split(plan.features))
    raise ValueError(f'`overflow` is "split", "truncate", "drop" or "error", but got {overflow!r}.')


def _length(feature: Feature, element: Any) -> int:
    value = feature.of(element)
    return len(value) if hasattr(value, "__len__") else 1


def _cut(element: Any, features: Sequence[Feature], start: int, stop: int) -> Any:
    """Return the cells of an element in a part of its rows, each from `start` to `stop` rows."""
    for feature in features:
        value = feature.of(element)
        if hasattr(value, "__len__"):
            part = value[start * feature.capacity : stop * feature.capacity]
            element = _replaced(element, feature.path, part)
    return element


def _replaced(element: Any, path: Sequence[Any], value: NDArray[Any]) -> Any:
    if not path:
        return value
    return {**element, path[0]: _replaced(element[path[0]], path[1:], value)}


class _Fits(transforms.Filter):
    """Whether an element is not longer than a row."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features

    def filter(self, element: Any) -> bool:
        return all(_length(feature, element) <= feature.capacity for feature in self._features)


class _Truncate(transforms.Map):
    """The beginning of an element that is longer than a row."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features
        self._fits = _Fits(features)

    def map(self, element: Any) -> Any:
        return element if self._fits.filter(element) else _cut(element, self._features, 0, 1)


class _Split(transforms.FlatMap):
    """The parts of an element that are as long as a row, and the rest of it."""

    max_fan_out = 2**31  # An iterator needs no bound.

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features

    def flat_map(self, element: Any) -> Sequence[Any]:
        rows = max(-(-_length(feature, element) // feature.capacity) for feature in self._features)
        if rows <= 1:
            return (element,)
        return [_cut(element, self._features, row, row + 1) for row in range(rows)]
