"""map, on datasets by index and in order."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import READ_OPTIONS, R, source
from wholegrain.testing import check_iter_dataset, check_map_dataset


def _double(element: int) -> int:
    return 2 * element


class Double(wg.transforms.Map):
    def map(self, element: int) -> int:
        return 2 * element


def test_each_element_is_replaced() -> None:
    ds = wg.MapDataset.range(4).map(_double)
    assert len(ds) == 4
    assert [ds[i] for i in range(4)] == [0, 2, 4, 6]
    assert list(ds) == [0, 2, 4, 6]


def test_indices_past_the_end_address_later_epochs() -> None:
    ds = wg.MapDataset.range(4).map(_double)
    assert [ds[4], ds[7], ds[-1], ds[400]] == [0, 6, 6, 0]


@pytest.mark.parametrize("transform", [_double, Double()])
def test_a_function_and_an_object_do_the_same(transform: Any) -> None:
    ds = wg.MapDataset.range(5)
    assert list(ds.map(transform)) == [0, 2, 4, 6, 8]
    assert list(ds.to_iter_dataset().map(transform)) == [0, 2, 4, 6, 8]


def test_none_takes_the_element_out_of_a_map_dataset() -> None:
    ds = wg.MapDataset.range(6).map(lambda x: None if x % 2 else x)
    assert len(ds) == 6
    assert [ds[i] for i in range(6)] == [0, None, 2, None, 4, None]
    assert list(ds) == [0, 2, 4]


def test_none_is_an_element_of_an_iter_dataset() -> None:
    ds = wg.MapDataset.range(4).to_iter_dataset().map(lambda x: None if x % 2 else x)
    assert list(ds) == [0, None, 2, None]


def test_the_function_is_not_called_for_none() -> None:
    seen: list[Any] = []

    def remember(element: Any) -> Any:
        seen.append(element)
        return element

    ds = source([1, None, 3])
    assert [ds.map(remember)[i] for i in range(3)] == [1, None, 3]
    assert list(ds.to_iter_dataset(allow_nones=True).map(remember)) == [1, None, 3]
    assert seen == [1, 3, 1, 3]


@pytest.mark.parametrize("wrong", [3, "abc", None])
def test_what_cannot_be_called_is_refused_at_the_call(wrong: Any) -> None:
    for ds in (wg.MapDataset.range(3), wg.MapDataset.range(3).to_iter_dataset()):
        with pytest.raises(TypeError, match="`map` needs a function"):
            ds.map(wrong)


def test_any_object_may_come_out() -> None:
    ds = R(3).map(lambda x: {"x": np.full(2, x), "y": [x, "s"]})
    assert ds[1]["y"] == [1, "s"]
    assert [element["x"].tolist() for element in ds] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_elements_are_the_same_with_any_number_of_threads(options: wg.ReadOptions) -> None:
    ds = wg.MapDataset.range(200).map(_double)
    assert list(ds.to_iter_dataset(options)) == list(range(0, 400, 2))


def test_reads_chunks_as_elements_and_resumes() -> None:
    ds = wg.MapDataset.range(10).map(lambda x: None if x == 3 else x * 2)
    check_map_dataset(ds)
    check_iter_dataset(ds.to_iter_dataset())
    check_iter_dataset(wg.MapDataset.range(10).to_iter_dataset().map(_double))


def test_the_name_says_what_is_called() -> None:
    assert str(wg.MapDataset.range(3).map(Double())) == "MapMapDataset(transform=Double)"
    assert str(wg.MapDataset.range(3).map(abs)) == "MapMapDataset(transform=abs)"
    name = str(wg.MapDataset.range(3).map(_double))
    assert name.startswith("MapMapDataset(transform=_double @ .../tests/graph/test_map.py:")
    it = R(3).to_iter_dataset().map(Double())
    assert str(it) == "MapIterDataset(transform=Double)"
    assert str(iter(it)) == "MapDatasetIterator(transform=Double)"
