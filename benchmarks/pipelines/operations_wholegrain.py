"""Operations of a DataLoader around a function: classes that workers can import."""

from collections.abc import Callable
from typing import Any

from wholegrain import transforms


class Map(transforms.Map):
    """A map."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def map(self, element: Any) -> Any:
        return self._function(element)


class Filter(transforms.Filter):
    """A filter."""

    def __init__(self, function: Callable[..., bool]) -> None:
        self._function = function

    def filter(self, element: Any) -> bool:
        return self._function(element)


class RandomMap(transforms.RandomMap):
    """A random map."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def random_map(self, element: Any, rng: Any) -> Any:
        return self._function(element, rng)
