"""repeat: several epochs counted as one, or read one after the other."""

import itertools
import sys
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import END, R, X, finishes
from wholegrain.testing import check_iter_dataset, check_map_dataset


def test_the_epoch_is_repeated() -> None:
    ds = R(3).repeat(2)
    assert len(ds) == 6
    assert list(ds) == [0, 1, 2, 0, 1, 2]
    assert list(R(3).repeat(2).repeat(2)) == [0, 1, 2] * 4


def test_without_a_number_it_is_repeated_forever() -> None:
    ds = R(3).repeat()
    assert len(ds) == sys.maxsize
    assert list(itertools.islice(ds, 7)) == [0, 1, 2, 0, 1, 2, 0]
    assert ds[10**15] == 10**15 % 3


def test_an_empty_dataset_stays_empty() -> None:
    assert len(R(0).repeat()) == 0
    assert list(R(0).repeat()) == []
    assert list(R(0).repeat(3)) == []


def test_shuffles_above_differ_between_epochs_unless_told_not_to() -> None:
    shuffled = R(50).shuffle(seed=1)
    epochs = list(shuffled.repeat(2))
    assert epochs[:50] == [shuffled[i] for i in range(50)]
    assert epochs[50:] == [shuffled[i] for i in range(50, 100)]
    assert epochs[:50] != epochs[50:]
    assert list(shuffled.repeat(2, reseed_each_epoch=False)) == epochs[:50] * 2


def test_what_follows_sees_one_long_epoch() -> None:
    ds = R(4).repeat(3).shuffle(seed=5)
    assert len(ds) == 12
    assert sorted(ds) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert sorted(list(ds)[:4]) != [0, 1, 2, 3]


@pytest.mark.parametrize("num_epochs", [0, -1])
def test_there_is_at_least_one_epoch(num_epochs: int) -> None:
    with pytest.raises(ValueError, match=f"num_epochs={num_epochs}") as raised:
        R(3).repeat(num_epochs)
    assert "Leave it out" in str(raised.value)
    with pytest.raises(ValueError, match=f"num_epochs={num_epochs}"):
        X.RepeatIterDataset(R(3).to_iter_dataset(), num_epochs)


def test_an_infinite_dataset_cannot_be_repeated() -> None:
    with pytest.raises(ValueError, match="infinite"):
        R(3).repeat().repeat(2)
    with pytest.raises(ValueError, match="infinite"):
        R(3).repeat().repeat()


def test_reads_chunks_as_elements_and_resumes() -> None:
    ds = R(5).shuffle(seed=3)
    check_map_dataset(ds.repeat(2))
    check_map_dataset(ds.repeat())
    check_map_dataset(ds.repeat(3, reseed_each_epoch=False))
    check_iter_dataset(ds.repeat(2).to_iter_dataset())
    check_iter_dataset(ds.repeat().to_iter_dataset())


# In order.


def test_in_order_every_epoch_is_like_the_first() -> None:
    ds = R(4).shuffle(seed=2).to_iter_dataset()
    assert list(X.RepeatIterDataset(ds, 3)) == list(ds) * 3
    assert list(itertools.islice(X.RepeatIterDataset(ds), 9)) == (list(ds) * 3)[:9]


def test_the_epoch_is_part_of_the_state() -> None:
    it = iter(X.RepeatIterDataset(R(2).to_iter_dataset(), 2))
    states = [it.get_state(), *(it.get_state() for _ in it)]
    assert states == [
        {"parent": {"next_index": 0}, "epoch": 0},
        {"parent": {"next_index": 1}, "epoch": 0},
        {"parent": {"next_index": 2}, "epoch": 0},
        {"parent": {"next_index": 1}, "epoch": 1},
        {"parent": {"next_index": 2}, "epoch": 1},
    ]
    assert it.get_state() == {"parent": {"next_index": 2}, "epoch": 2}


def test_in_order_an_empty_dataset_comes_to_an_end() -> None:
    empty = R(0).to_iter_dataset()
    nothing_left = R(5).to_iter_dataset().filter(lambda _: False)

    def run() -> None:
        for ds in (empty, nothing_left):
            for num_epochs in (None, 1, 3):
                it = iter(X.RepeatIterDataset(ds, num_epochs))
                assert [next(it, END) for _ in range(3)] == [END] * 3
            it = iter(X.RepeatIterDataset(ds).batch(2))
            assert [next(it, END) for _ in range(3)] == [END] * 3

    finishes(run)


def test_the_parent_is_rewound_and_not_opened_again() -> None:
    opened = 0

    class Counted(wg.IterDataset[Any]):
        def __iter__(self) -> Any:
            nonlocal opened
            opened += 1
            return iter(R(3).to_iter_dataset())

    assert list(X.RepeatIterDataset(Counted(), 4)) == [0, 1, 2] * 4
    assert opened == 1


def test_in_order_it_resumes() -> None:
    ds = R(3).to_iter_dataset()
    check_iter_dataset(X.RepeatIterDataset(ds, 3))
    check_iter_dataset(X.RepeatIterDataset(ds), max_elements=10)
    check_iter_dataset(X.RepeatIterDataset(ds, 3).batch(2))
    check_iter_dataset(X.RepeatIterDataset(ds.filter(lambda x: x != 1), 3))
