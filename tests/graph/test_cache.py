"""Cache: the first epoch in memory."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import END, CountingSource, R, Unreadable, X, outcomes, source
from wholegrain.testing import check_iter_dataset


def _counted(length: int) -> tuple[list[int], wg.IterDataset[int]]:
    seen: list[int] = []

    def remember(element: int) -> int:
        seen.append(element)
        return element

    return seen, X.CacheIterDataset(R(length).to_iter_dataset().map(remember))


def test_elements_pass_through() -> None:
    seen, ds = _counted(4)
    assert list(ds) == [0, 1, 2, 3]
    assert seen == [0, 1, 2, 3]


def test_later_epochs_come_from_memory() -> None:
    seen, ds = _counted(4)
    assert list(X.RepeatIterDataset(ds, 3)) == [0, 1, 2, 3] * 3
    assert seen == [0, 1, 2, 3]


def test_each_iterator_has_a_cache_of_its_own() -> None:
    seen, ds = _counted(2)
    assert list(ds) == list(ds)
    assert seen == [0, 1, 0, 1]


def test_elements_are_not_copied() -> None:
    array = np.zeros(2)
    ds = X.CacheIterDataset(source([array]).to_iter_dataset())
    assert all(element is array for element in X.RepeatIterDataset(ds, 3))


def test_a_restored_iterator_reads_once_more() -> None:
    seen, ds = _counted(4)
    repeated = X.RepeatIterDataset(ds, 3)
    it = iter(repeated)
    for _ in range(6):
        next(it)
    state = it.get_state()
    assert state["parent"]["cache_filled"] is True
    seen.clear()
    restored = iter(repeated)
    restored.set_state(state)
    assert seen == []  # Not before an element is asked for.
    assert list(restored) == [2, 3, 0, 1, 2, 3]
    assert seen == [0, 1, 2, 3]


def test_a_state_may_be_restored_twice_before_anything_is_read() -> None:
    _, ds = _counted(4)
    repeated = X.RepeatIterDataset(ds, 3)
    it = iter(repeated)
    for _ in range(6):
        next(it)
    state = it.get_state()
    restored = iter(repeated)
    restored.set_state(state)
    restored.set_state(state)
    assert list(restored) == [2, 3, 0, 1, 2, 3]
    first = iter(repeated)
    fresh = first.get_state()
    first.set_state(state)
    first.set_state(fresh)
    assert list(first) == [0, 1, 2, 3] * 3


def test_an_element_that_failed_is_not_in_the_cache() -> None:
    records = CountingSource(4, fails_at=[1])
    ds = X.CacheIterDataset(source(records).to_iter_dataset(wg.ReadOptions(0)))
    it = iter(X.RepeatIterDataset(ds, 2))
    assert outcomes(it) == [0, "record 1", 2, 3, 0, 2, 3, END]


def test_reading_again_goes_on_behind_an_element_that_fails() -> None:
    records = CountingSource(4, fails_at=[1])
    ds = X.CacheIterDataset(source(records).to_iter_dataset(wg.ReadOptions(0)))
    repeated = X.RepeatIterDataset(ds, 2)
    it = iter(repeated)
    found = [outcomes(it, limit=1)[0] for _ in range(5)]
    assert found == [0, "record 1", 2, 3, 0]
    restored = iter(repeated)
    restored.set_state(it.get_state())
    with pytest.raises(Unreadable, match="record 1"):
        next(restored)
    assert outcomes(restored) == [2, 3, END]


def test_it_resumes() -> None:
    ds: Any = X.CacheIterDataset(R(4).to_iter_dataset())
    check_iter_dataset(ds)
    check_iter_dataset(X.CacheIterDataset(R(9).to_iter_dataset().filter(lambda x: x % 3)))
