"""Rebatch: rows in batches of another size."""

from typing import Any

import numpy as np
import pytest

from tests.graph.tools import END, R, X, as_lists, fails_on, outcomes_and_states, source
from wholegrain.testing import check_iter_dataset


def _batches(length: int, size: int) -> Any:
    return R(length).to_iter_dataset().batch(size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 20])
@pytest.mark.parametrize("new_size", [1, 3, 4, 6, 30])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_rows_stay_in_order(size: int, new_size: int, drop_remainder: bool) -> None:
    ds = X.RebatchIterDataset(_batches(11, size), new_size, drop_remainder)
    expected = as_lists(_batches_of(range(11), new_size, drop_remainder))
    assert as_lists(ds) == expected


def _batches_of(numbers: Any, size: int, drop_remainder: bool) -> list[Any]:
    batches = [list(numbers[i : i + size]) for i in range(0, len(numbers), size)]
    return [b for b in batches if len(b) == size or not drop_remainder]


def test_trees_are_cut_leaf_by_leaf() -> None:
    ds = R(5).map(lambda x: {"x": x, "y": (np.full(2, x),)}).batch(2).to_iter_dataset()
    batches = list(X.RebatchIterDataset(ds, 3))
    assert [b["x"].tolist() for b in batches] == [[0, 1, 2], [3, 4]]
    assert [b["y"][0].shape for b in batches] == [(3, 2), (2, 2)]


def test_part_of_a_batch_is_a_view() -> None:
    whole = np.arange(6)
    ds = X.RebatchIterDataset(source([whole]).to_iter_dataset(), 2)
    assert all(np.shares_memory(batch, whole) for batch in ds)


def test_the_state_names_the_batch_that_is_cut() -> None:
    it = iter(X.RebatchIterDataset(_batches(10, 4), 3))
    states = [it.get_state(), *(it.get_state() for _ in it)]
    assert [(s["parent"]["next_index"], s["batch_idx"]) for s in states] == [
        (0, 0), (0, 3), (4, 2), (8, 1), (10, 2)
    ]  # fmt: skip


def test_at_the_end_no_empty_batch_follows() -> None:
    ds = X.RebatchIterDataset(_batches(4, 4), 2)
    it = iter(ds)
    list(zip(range(2), it, strict=True))
    restored = iter(ds)
    restored.set_state(it.get_state())
    assert [next(restored, END), next(it, END)] == [END, END]


@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_has_at_least_one_row(size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size={size}"):
        X.RebatchIterDataset(_batches(4, 2), size)


def test_a_batch_without_rows_is_an_error_and_passed_over() -> None:
    batches = [np.arange(2), np.arange(0), np.arange(3)]
    it = iter(X.RebatchIterDataset(source(batches).to_iter_dataset(), 2))
    assert next(it).tolist() == [0, 1]
    with pytest.raises(ValueError, match="without rows"):
        next(it)
    assert as_lists(it) == [[0, 1], [2]]


@pytest.mark.parametrize("element", [3, 2.5, {}, {"x": 3}])
def test_what_is_no_batch_is_an_error(element: Any) -> None:
    it = iter(X.RebatchIterDataset(source([element]).to_iter_dataset(), 2))
    with pytest.raises(TypeError, match="takes batches") as raised:
        next(it)
    assert "Call `batch` first" in str(raised.value)


def test_a_batch_that_fails_is_passed_over_with_the_rows_before_it() -> None:
    ds = R(10).map(fails_on(5)).to_iter_dataset().batch(2)
    found = outcomes_and_states(iter(X.RebatchIterDataset(ds, 3)))
    outcomes = as_lists(outcome for outcome, _ in found)
    assert outcomes == [[0, 1, 2], "element 5", [6, 7, 8], [9], END]
    assert found[1][1] == {"parent": {"next_index": 6}, "batch_idx": 0}


def test_it_resumes() -> None:
    check_iter_dataset(X.RebatchIterDataset(_batches(10, 4), 3))
    check_iter_dataset(X.RebatchIterDataset(_batches(10, 4), 3, drop_remainder=True))
    check_iter_dataset(X.RebatchIterDataset(_batches(10, 2), 7))
