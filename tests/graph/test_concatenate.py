"""concatenate: in each epoch, that epoch of each dataset in turn."""

from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import R, Unreadable, fails_on
from wholegrain.testing import check_iter_dataset, check_map_dataset

concatenate: Any = wg.MapDataset.concatenate


def test_one_after_the_other() -> None:
    ds = concatenate([R(3), R(10, 12), R(20, 24)])
    assert len(ds) == 9
    assert list(ds) == [0, 1, 2, 10, 11, 20, 21, 22, 23]


def test_each_epoch_has_that_epoch_of_each() -> None:
    one, two = R(4).shuffle(seed=1), R(10, 13).shuffle(seed=2)
    ds = concatenate([one, two])
    for epoch in range(-1, 3):
        expected = [one[4 * epoch + i] for i in range(4)] + [two[3 * epoch + i] for i in range(3)]
        assert [ds[7 * epoch + i] for i in range(7)] == expected


def test_empty_components_are_passed_over() -> None:
    ds = concatenate([R(0), R(2), R(0), R(5, 6), R(0)])
    assert list(ds) == [0, 1, 5]
    assert [ds[i] for i in range(3, 6)] == [0, 1, 5]


def test_no_dataset_is_an_empty_dataset() -> None:
    ds = concatenate([])
    assert len(ds) == 0
    assert list(ds) == []
    with pytest.raises(ZeroDivisionError):
        ds[0]


def test_nothing_can_follow_an_infinite_dataset() -> None:
    with pytest.raises(ValueError, match="the one at 1 is") as raised:
        concatenate([R(3), R(3).repeat()])
    assert "repeat afterwards" in str(raised.value)


def test_an_error_names_the_component() -> None:
    ds = concatenate([R(3), R(10, 14).map(fails_on(12))])
    with pytest.raises(Unreadable) as raised:
        ds[5]
    assert any("component 1" in note for note in raised.value.__notes__)


def test_missing_elements_stay_missing() -> None:
    ds = concatenate([R(3).filter(bool), R(2)])
    assert [ds[i] for i in range(5)] == [None, 1, 2, 0, 1]
    assert list(ds) == [1, 2, 0, 1]


def test_reads_chunks_as_elements_and_resumes() -> None:
    ds = concatenate([R(4).shuffle(seed=1), R(0), R(10, 13), R(30, 31).repeat(2)])
    check_map_dataset(ds, epochs=3)
    check_iter_dataset(ds.to_iter_dataset())
