"""Window shuffle: a random order within windows, for datasets that are read in order."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.tools import END, R, X, fails_on, outcomes, outcomes_and_states
from wholegrain._core.permute import shuffle_indices
from wholegrain.testing import check_iter_dataset


def _shuffled(length: int, window_size: int, seed: int) -> Any:
    ds = R(length).to_iter_dataset()
    return X.WindowShuffleIterDataset(ds, window_size=window_size, seed=seed)


def test_known_order() -> None:
    assert list(_shuffled(10, 4, 7)) == [1, 3, 0, 2, 6, 4, 7, 5, 8, 9]


@given(length=st.integers(0, 20), window_size=st.integers(1, 25), seed=st.integers(0, 2**32 - 1))
def test_each_window_has_its_elements_once(length: int, window_size: int, seed: int) -> None:
    elements = list(_shuffled(length, window_size, seed))
    assert len(elements) == length
    for start in range(0, length, window_size):
        window = range(start, min(start + window_size, length))
        assert sorted(elements[start : start + window_size]) == list(window)


def test_windows_are_larger_than_a_permutation_that_is_kept() -> None:
    elements = list(_shuffled(70_000, 69_000, 1))
    assert sorted(elements[:69_000]) == list(range(69_000))
    assert elements[:69_000] != sorted(elements[:69_000])
    assert sorted(elements[69_000:]) == list(range(69_000, 70_000))
    shuffle = X.index_shuffle
    assert elements[:3] == [shuffle(68_999 - j, 68_999, 1, 4) for j in range(3)]


def test_no_window_is_no_element() -> None:
    assert list(_shuffled(5, 0, 1)) == []
    with pytest.raises(ValueError, match="-1"):
        _shuffled(5, -1, 1)


def test_a_seed_is_needed() -> None:
    with pytest.raises(TypeError):
        X.WindowShuffleIterDataset(R(5), window_size=3)
    with pytest.raises(ValueError, match="seed=4294967296"):
        _shuffled(5, 2, 2**32)


def test_the_last_seed_is_followed_by_the_first() -> None:
    late = list(_shuffled(8, 4, 2**32 - 1))
    early = list(_shuffled(4, 4, 0))
    assert [x - 4 for x in late[4:]] == early


def test_a_window_starts_again_behind_an_element_that_fails() -> None:
    ds = R(12).to_iter_dataset().map(fails_on(5))
    it = iter(X.WindowShuffleIterDataset(ds, window_size=4, seed=1))
    found = outcomes_and_states(it)
    elements = [outcome for outcome, _ in found]
    assert sorted(elements[:4]) == [0, 1, 2, 3]
    assert elements[4] == "element 5"
    # What was collected for the window is lost with it, as in a batch.
    assert sorted(elements[5:9]) == [6, 7, 8, 9]
    assert sorted(elements[9:11]) == [10, 11]
    assert elements[11] == END
    for step in range(len(found) - 1):
        restored = iter(X.WindowShuffleIterDataset(ds, window_size=4, seed=1))
        restored.set_state(found[step][1])
        assert outcomes(restored) == elements[step + 1 :]


def test_it_resumes() -> None:
    check_iter_dataset(_shuffled(10, 4, 7))
    check_iter_dataset(_shuffled(8, 4, 7))
    check_iter_dataset(_shuffled(8, 4, 7).batch(3))
    filtered = R(20).to_iter_dataset().filter(lambda x: x % 3)
    check_iter_dataset(X.WindowShuffleIterDataset(filtered, window_size=4, seed=2))
    twice = X.WindowShuffleIterDataset(_shuffled(10, 3, 1), window_size=4, seed=2)
    check_iter_dataset(twice)


@pytest.mark.parametrize("size", [1, 3, 16, 200])
def test_orders_that_are_computed_together_are_those_of_each_window(size: int) -> None:
    seed = 2**32 - 20  # The seeds of later windows begin again at 0.
    ds = _shuffled(50 * size + 1, size, seed)
    elements = list(ds)
    it = iter(ds)
    for window in range(51):
        rows = elements[window * size : (window + 1) * size]
        alone = shuffle_indices(np.arange(len(rows))[::-1], len(rows), (seed + window) % 2**32)
        assert rows == [window * size + place for place in alone.tolist()]
        state = {"parent_window_start_state": {"next_index": window * size}}
        it.set_state({**state, "window_index": window, "pos_in_window": 0})
        assert next(it) == rows[0]
