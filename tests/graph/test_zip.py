"""Zip: tuples of the elements of several datasets."""

from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import END, R, X, fails_on, outcomes, outcomes_and_states
from wholegrain.testing import check_iter_dataset, check_map_dataset


def test_elements_at_the_same_index() -> None:
    ds = X.ZipMapDataset([R(3), R(10, 13), R(3).shuffle(seed=1)])
    shuffled = R(3).shuffle(seed=1)
    assert len(ds) == 3
    assert list(ds) == [(i, 10 + i, shuffled[i]) for i in range(3)]
    assert ds[5] == (2, 12, shuffled[5])


def test_a_missing_element_is_none_in_the_tuple() -> None:
    ds = X.ZipMapDataset([R(3).filter(bool), R(3)])
    assert list(ds) == [(None, 0), (1, 1), (2, 2)]


def test_lengths_have_to_be_equal() -> None:
    with pytest.raises(ValueError, match=r"\[3, 4\]") as raised:
        X.ZipMapDataset([R(3), R(4)])
    assert "Slice" in str(raised.value)
    for zipped in (X.ZipMapDataset, X.ZipIterDataset):
        with pytest.raises(ValueError, match="at least one dataset"):
            zipped([])


def test_reads_chunks_as_elements_and_resumes() -> None:
    ds = X.ZipMapDataset([R(7).shuffle(seed=1), R(7)])
    check_map_dataset(ds, epochs=3)
    check_iter_dataset(ds.to_iter_dataset())


def _iters(*lengths: int) -> list[wg.IterDataset[Any]]:
    return [R(100 * n, 100 * n + length).to_iter_dataset() for n, length in enumerate(lengths)]


def test_the_next_element_of_each() -> None:
    ds = X.ZipIterDataset(_iters(3, 3))
    assert list(ds) == [(0, 100), (1, 101), (2, 102)]
    assert list(X.ZipIterDataset([R(2), R(2)])) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((3, 2), "argument 2 is shorter than argument 1"),
        ((3, 3, 2), "argument 3 is shorter than arguments 1-2"),
        ((2, 3), "argument 2 is longer than argument 1"),
        ((2, 2, 3), "argument 3 is longer than arguments 1-2"),
    ],
)
def test_unequal_ends_are_an_error(lengths: tuple[int, ...], message: str) -> None:
    it = iter(X.ZipIterDataset(_iters(*lengths)))
    for _ in range(2):
        next(it)
    with pytest.raises(ValueError, match=message) as raised:
        next(it)
    assert "strict=False" in str(raised.value)


def test_the_shortest_may_end_it() -> None:
    assert list(X.ZipIterDataset(_iters(4, 2, 3), strict=False)) == [(0, 100, 200), (1, 101, 201)]
    it = iter(X.ZipIterDataset(_iters(2, 9), strict=False))
    assert [next(it, END) for _ in range(4)] == [(0, 100), (1, 101), END, END]


def test_a_tuple_with_a_failing_element_is_lost_as_a_whole() -> None:
    for bad in range(3):
        parts: list[Any] = _iters(4, 4, 4)
        parts[bad] = parts[bad].map(fails_on(100 * bad + 1))
        found = outcomes_and_states(iter(X.ZipIterDataset(parts)))
        expected = [(0, 100, 200), f"element {100 * bad + 1}", (2, 102, 202), (3, 103, 203), END]
        assert [outcome for outcome, _ in found] == expected
        assert found[1][1] == {"parents": [{"next_index": 2}] * 3}


def test_two_elements_of_a_tuple_may_fail() -> None:
    parts = [part.map(fails_on(1, 101)) for part in _iters(3, 3)]
    assert outcomes(iter(X.ZipIterDataset(parts))) == [(0, 100), "element 1", (2, 102), END]


def test_in_order_it_resumes() -> None:
    check_iter_dataset(X.ZipIterDataset(_iters(5, 5)))
    check_iter_dataset(X.ZipIterDataset([part.batch(2) for part in _iters(5, 5)]))
    check_iter_dataset(X.ZipIterDataset(_iters(5, 3), strict=False))
