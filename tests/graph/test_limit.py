"""Limit: the first elements."""

import pytest

from tests.graph.tools import END, R, X, as_lists, fails_on, outcomes_and_states
from wholegrain.testing import check_iter_dataset


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (3, 3), (5, 5), (9, 5)])
def test_the_first_elements_or_all(count: int, expected: int) -> None:
    assert list(X.LimitIterDataset(R(5).to_iter_dataset(), count)) == list(range(expected))


def test_an_infinite_dataset_comes_to_an_end() -> None:
    ds = X.LimitIterDataset(R(2).repeat().to_iter_dataset(), 5)
    assert list(ds) == [0, 1, 0, 1, 0]
    assert as_lists(ds.batch(2)) == [[0, 1], [0, 1], [0]]


@pytest.mark.parametrize("count", [0, -1])
def test_the_count_is_positive(count: int) -> None:
    with pytest.raises(ValueError, match=f"positive count, but got count={count}"):
        X.LimitIterDataset(R(5).to_iter_dataset(), count)


def test_nothing_is_read_behind_the_limit() -> None:
    seen: list[int] = []

    def remember(element: int) -> int:
        seen.append(element)
        return element

    it = iter(X.LimitIterDataset(R(9).to_iter_dataset().map(remember), 3).batch(2))
    assert as_lists(it) == [[0, 1], [2]]
    assert next(it, END) == END
    assert seen == [0, 1, 2]


def test_a_failing_element_is_not_counted() -> None:
    ds = X.LimitIterDataset(R(9).to_iter_dataset().map(fails_on(1)), 3)
    found = outcomes_and_states(iter(ds))
    assert [outcome for outcome, _ in found] == [0, "element 1", 2, 3, END]
    assert [s["count_elements_read"] for _, s in found] == [1, 1, 2, 3, 3]


def test_it_resumes() -> None:
    ds = X.LimitIterDataset(R(9).to_iter_dataset(), 5)
    check_iter_dataset(ds)
    check_iter_dataset(ds.batch(2))
    check_iter_dataset(X.LimitIterDataset(R(9).to_iter_dataset().filter(lambda x: x % 3), 4))
