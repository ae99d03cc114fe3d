"""Functions that return one object for all elements, changed each time, as Grain allows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import X


class _Copies(X.FlatMapTransform):  # type: ignore[misc]
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element.copy()]


class _Twice(X.FlatMapTransform):  # type: ignore[misc]
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element, element]


def _numbers(count: int = 300) -> wg.IterDataset[Any]:
    """Return arrays that are all the same one."""
    buffer = np.zeros(1, int)

    def fill(number: int) -> Any:
        buffer[0] = number
        return buffer

    return wg.MapDataset.range(count).to_iter_dataset(wg.ReadOptions(0, 0)).map(fill)


_PIPELINES: dict[str, Callable[[], Any]] = {
    "itself": _numbers,
    "map": lambda: _numbers().map(lambda array: int(array[0])),
    "filter": lambda: _numbers().filter(lambda array: array[0] >= 0),
    "filter and map": lambda: (
        _numbers().filter(lambda array: array[0] >= 0).map(lambda array: int(array[0]))
    ),
    "flat map": lambda: X.FlatMapIterDataset(_numbers(), _Copies()),
    "batch": lambda: _numbers().batch(1),
    "limit": lambda: X.LimitIterDataset(_numbers(), 300),
    "dicts": lambda: _numbers().map(lambda array: {"x": array}).map(lambda d: d["x"]),
}


@pytest.mark.parametrize("name", _PIPELINES)
def test_an_element_is_right_until_the_next_is_asked_for(name: str) -> None:
    it = iter(_PIPELINES[name]())
    found = [int(np.asarray(element).ravel()[0]) for element in it]
    assert found == list(range(300))


def test_it_is_right_with_clocks_around_the_stages_too() -> None:
    it: Any = iter(_numbers(3000).map(lambda array: int(array[0])))
    found = []
    for step, number in enumerate(it):
        found.append(number)
        if step % 100 == 50:
            it.set_clocks(step % 200 == 50)  # Clocks keep adjacent functions from running fused.
    assert found == list(range(3000))


def test_parts_that_are_the_same_object_do_not_hide_one_that_is_changed_each_time() -> None:
    ds: Any = X.FlatMapIterDataset(_numbers(), _Twice())
    assert [int(array[0]) for array in ds] == [n // 2 for n in range(600)]
    assert list(ds.map(lambda array: int(array[0]))) == [n // 2 for n in range(600)]
