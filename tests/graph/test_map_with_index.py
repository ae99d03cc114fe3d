"""map_with_index: the index that was asked for, or a count of elements."""

from typing import Any

import wholegrain as wg
from tests.graph.tools import R, source
from wholegrain.testing import check_iter_dataset, check_map_dataset


def _pair(index: int, element: Any) -> Any:
    return index, element


class Pair(wg.transforms.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return index, element


def test_by_index_it_is_the_index_that_was_asked_for() -> None:
    ds = R(3).shuffle(seed=1).map_with_index(_pair)
    assert [index for index, _ in ds] == [0, 1, 2]
    assert [ds[i][0] for i in (3, 7, -1, 10**12)] == [3, 7, -1, 10**12]
    assert all(type(ds[i][0]) is int for i in range(3))
    assert all(type(index) is int for index, _ in ds)


def test_in_order_it_counts_the_elements_of_the_parent() -> None:
    ds = wg.MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 3 == 0)
    assert list(ds.map_with_index(_pair)) == [(0, 0), (1, 3), (2, 6), (3, 9)]


def test_none_is_counted_but_not_passed_to_the_function() -> None:
    ds = source(["a", None, "b"])
    assert [ds.map_with_index(_pair)[i] for i in range(3)] == [(0, "a"), None, (2, "b")]
    it = ds.to_iter_dataset(allow_nones=True).map_with_index(_pair)
    assert list(it) == [(0, "a"), None, (2, "b")]


def test_a_function_and_an_object_do_the_same() -> None:
    ds = wg.MapDataset.range(4)
    assert list(ds.map_with_index(Pair())) == list(ds.map_with_index(_pair))
    it = ds.to_iter_dataset()
    assert list(it.map_with_index(Pair())) == list(it.map_with_index(_pair))


def test_the_counter_is_part_of_the_state() -> None:
    it = iter(wg.MapDataset.range(5).to_iter_dataset().map_with_index(_pair))
    next(it)
    assert it.get_state() == {"parent": {"next_index": 1}, "counter": 1}


def test_reads_chunks_as_elements_and_resumes() -> None:
    check_map_dataset(wg.MapDataset.range(9).map_with_index(_pair))
    check_iter_dataset(wg.MapDataset.range(9).to_iter_dataset().map_with_index(_pair))
    check_iter_dataset(wg.MapDataset.range(9).to_iter_dataset().map_with_index(_pair).batch(2))
