"""slice and `ds[...]`: part of each epoch."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.tools import R, as_lists, source
from wholegrain.testing import check_iter_dataset, check_map_dataset

_BOUND = st.none() | st.integers(-12, 12)


@given(length=st.integers(0, 10), start=_BOUND, stop=_BOUND, step=st.sampled_from([None, 1, 2, -1]))
def test_picks_what_python_picks(
    length: int, start: int | None, stop: int | None, step: int | None
) -> None:
    ds = R(length)[start:stop:step]
    expected = list(range(length))[start:stop:step]
    assert len(ds) == len(expected)
    assert list(ds) == expected
    assert list(R(length).slice(slice(start, stop, step))) == expected


def test_epochs_come_from_the_epochs_of_the_parent() -> None:
    shuffled = R(10).shuffle(seed=1)
    part = shuffled[2:8:2]
    for epoch in range(-1, 3):
        expected = [shuffled[10 * epoch + position] for position in (2, 4, 6)]
        assert [part[3 * epoch + i] for i in range(3)] == expected


def test_shards_have_all_elements_once() -> None:
    shuffled = R(11).shuffle(seed=1)
    shards = [shuffled[shard::3] for shard in range(3)]
    assert [len(shard) for shard in shards] == [4, 4, 3]
    assert sorted(x for shard in shards for x in shard) == list(range(11))


def test_slices_of_slices_compose() -> None:
    assert list(R(20)[2:18][::3][1:4]) == list(range(20))[2:18][::3][1:4]


def test_every_node_can_be_sliced() -> None:
    ds = R(10).map(lambda x: x * 2).batch(2)
    assert [b.tolist() for b in ds[1:3]] == [[4, 6], [8, 10]]
    assert list(R(10).filter(lambda x: x % 2)[::3]) == [3, 9]


def test_an_empty_slice_iterates_to_nothing() -> None:
    ds = R(10)[5:5]
    assert len(ds) == 0
    assert list(ds) == []
    assert not ds
    with pytest.raises(ZeroDivisionError, match="empty"):
        ds[0]


@pytest.mark.parametrize(
    "indices", [[3, 1, 1, 12, -1], (3, 1, 1, 12, -1), np.array([3, 1, 1, 12, -1])], ids=type
)
def test_a_sequence_of_indices_picks_those(indices: Any) -> None:
    shuffled = R(10).shuffle(seed=4)
    ds = shuffled.slice(indices)
    assert len(ds) == 5
    assert list(ds) == [shuffled[i] for i in (3, 1, 1, 12, -1)]
    assert [ds[i] for i in range(5, 10)] == [shuffled[i + 10] for i in (3, 1, 1, 12, -1)]


def test_a_dataset_of_indices_picks_those_of_its_first_epoch() -> None:
    order = R(5).shuffle(seed=2)
    ds = R(5).shuffle(seed=4).slice(order)
    parent = R(5).shuffle(seed=4)
    assert [ds[i] for i in range(10)] == [parent[order[i % 5] + 5 * (i // 5)] for i in range(10)]


@pytest.mark.parametrize("wrong", [3, "abc", b"ab", None, {1: 2}])
def test_anything_else_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="slice") as raised:
        R(5).slice(wrong)
    assert repr(wrong) in str(raised.value)


@pytest.mark.parametrize("wrong", [[1, "a"], [1.5], [None]])
def test_indices_are_whole_numbers(wrong: Any) -> None:
    with pytest.raises(TypeError, match="whole numbers") as raised:
        R(5).slice(wrong)
    assert repr(wrong[-1]) in str(raised.value)


@pytest.mark.parametrize("index", ["a", 1.5, None, (1,)])
def test_an_index_is_a_whole_number(index: Any) -> None:
    with pytest.raises(TypeError):
        R(5)[index]


def test_numpy_integers_are_indices() -> None:
    assert R(5).map(abs)[np.int32(3)] == 3
    assert source("abc")[np.uint8(4)] == "b"


def test_parts_of_an_infinite_dataset_have_later_epochs_too() -> None:
    endless = R(3).repeat()
    part = endless[:5]
    expected = [(index % 5 + index // 5 * sys.maxsize) % 3 for index in range(15)]
    assert [part[i] for i in range(15)] == expected
    assert list(part.repeat(3)) == expected
    assert list(part.getitems(np.array([-1, 14]))) == [part[-1], part[14]]
    array = source(np.arange(3)).repeat()[:5].repeat(3)
    assert as_lists(array.batch(5)) == [expected[:5], expected[5:10], expected[10:]]
    check_map_dataset(R(7).shuffle(seed=1).repeat().slice([3, 1, 50]), epochs=3)
    check_map_dataset(endless[1::4], epochs=1)


def test_membership_truth_and_reversal_follow_from_length_and_index() -> None:
    ds = R(5).map(lambda x: x * 2)
    assert 4 in ds
    assert 5 not in ds
    assert ds
    assert not R(0)
    assert list(reversed(ds)) == [8, 6, 4, 2, 0]


def test_reads_chunks_as_elements_and_resumes() -> None:
    shuffled = R(13).shuffle(seed=2)
    check_map_dataset(shuffled[3:11:2], epochs=3)
    check_map_dataset(shuffled[::-1])
    check_map_dataset(shuffled.slice([5, 3, -40, 100]), epochs=3)
    check_iter_dataset(shuffled[1::3].to_iter_dataset())


def test_a_dataset_of_indices_is_read_when_elements_are() -> None:
    asked: list[int] = []

    def index(x: int) -> int:
        asked.append(x)
        return 9 - x

    ds = R(10).slice(R(10).map(index))
    assert not asked
    assert ds[3] == 6
    assert asked == [3]
    assert list(ds) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_a_sequence_of_indices_is_shown_shortened() -> None:
    text = "ReindexMapDataset(indices=[4, 3, ..., 1, 0], len=5)"
    assert str(R(5).slice([4, 3, 2, 1, 0])) == text
    assert str(R(5).slice([1])) == "ReindexMapDataset(indices=[1], len=1)"


def test_classes_written_for_grain_may_record_their_time() -> None:
    class Twice(wg.MapDataset[int]):
        def __len__(self) -> int:
            return len(self._parents[0])

        def __getitem__(self, index: Any) -> Any:
            with self._stats.record_self_time(num_elements=1):
                element = 2 * self._parents[0][index]
            return self._stats.record_output_spec(element)

    assert list(Twice(R(3))) == [0, 2, 4]
