"""Interleave: several datasets in turn, a few of them open at a time."""

import copy
import functools
import itertools
import json
import time
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import (
    END,
    R,
    Unreadable,
    X,
    eventually,
    fails_on,
    finishes,
    our_threads,
    outcomes,
    outcomes_and_states,
    source,
)
from wholegrain.testing import check_iter_dataset

_LISTS = [[1], [2, 2], [3, 3, 3], [4, 4, 4, 4]]


def _interleave(datasets: Any, cycle_length: int, **options: Any) -> Any:
    return X.InterleaveIterDataset(datasets, cycle_length=cycle_length, **options)


def _tens(*lengths: int) -> list[wg.MapDataset[int]]:
    """Datasets of 10, 11, ..., of 20, 21, ..."""
    return [R(10 * n, 10 * n + length) for n, length in enumerate(lengths, 1)]


@pytest.mark.parametrize(
    ("cycle_length", "expected"),
    [
        (1, [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]),
        (2, [1, 2, 2, 3, 3, 4, 3, 4, 4, 4]),
        (3, [1, 2, 3, 2, 3, 4, 3, 4, 4, 4]),
        (4, [1, 2, 3, 4, 2, 3, 4, 3, 4, 4]),
        (9, [1, 2, 3, 4, 2, 3, 4, 3, 4, 4]),
    ],
)
@pytest.mark.parametrize("kind", ["map", "iter", "dataset of datasets"])
def test_one_element_of_each_in_turn(cycle_length: int, expected: list[int], kind: str) -> None:
    datasets: Any = [source(elements) for elements in _LISTS]
    if kind == "iter":
        datasets = [ds.to_iter_dataset() for ds in datasets]
    elif kind == "dataset of datasets":
        datasets = source(_LISTS).map(source)
    ds = _interleave(datasets, cycle_length)
    assert list(ds) == expected
    it = iter(ds)
    it.start_prefetch()
    assert list(it) == expected


class Sleepy(wg.MapDataset[int]):
    """Numbers that have to be waited for."""

    def __init__(self, start: int, length: int) -> None:
        super().__init__()
        self._numbers = range(start, start + length)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        time.sleep(0.002)
        return self._numbers[index % len(self._numbers)]


@pytest.mark.parametrize("make_iter_buffer_size", [0, 1, 3])
@pytest.mark.parametrize("iter_buffer_size", [0, 1, 4])
def test_threads_do_not_change_the_order(make_iter_buffer_size: int, iter_buffer_size: int) -> None:
    lengths = (3, 1, 4, 2, 5, 0, 3)
    expected = list(_interleave(_tens(*lengths), 3))
    for to_iter in (False, True):
        datasets: list[Any] = [Sleepy(10 * n, length) for n, length in enumerate(lengths, 1)]
        if to_iter:
            datasets = [ds.to_iter_dataset(wg.ReadOptions(0)).map(abs) for ds in datasets]
        ds = _interleave(
            datasets,
            3,
            num_make_iter_threads=2,
            make_iter_buffer_size=make_iter_buffer_size,
            iter_buffer_size=iter_buffer_size,
        )
        it = iter(ds)
        assert finishes(functools.partial(list, it)) == expected
        it.close()


def test_datasets_are_made_when_they_are_needed() -> None:
    made: list[int] = []

    def make(number: int) -> Any:
        made.append(number)
        return R(10 * number, 10 * number + 2)

    it = iter(_interleave(R(5).map(make), 2))
    assert made == []
    next(it)
    assert made == [0]
    assert list(it) == [10, 1, 11, 20, 30, 21, 31, 40, 41]
    assert made == [0, 1, 2, 3, 4]


def test_datasets_can_be_shuffled() -> None:
    files = R(6).map(lambda n: R(10 * n, 10 * n + 3)).shuffle(seed=1)
    ds = _interleave(files, 6)
    assert sorted(ds) == sorted(10 * n + i for n in range(6) for i in range(3))
    hierarchical = X.WindowShuffleIterDataset(ds, window_size=5, seed=2)
    assert sorted(hierarchical) == sorted(ds)
    check_iter_dataset(hierarchical)


def test_missing_datasets_are_passed_over_and_the_open_ones_drained() -> None:
    datasets = R(1, 8).filter(lambda n: n % 2).map(lambda n: R(10 * n, 10 * n + n))
    there = [R(10 * n, 10 * n + n) for n in (1, 3, 5, 7)]
    for cycle_length in (1, 2, 3, 5, 9):
        ds = _interleave(datasets, cycle_length)
        assert list(ds) == list(_interleave(there, cycle_length))
        check_iter_dataset(ds)


def test_datasets_may_all_be_missing() -> None:
    ds = _interleave(source([R(3), R(3)]).filter(lambda _: False), 2)
    it = iter(ds)
    it.get_state()
    assert [next(it, END) for _ in range(2)] == [END, END]
    assert list(ds) == []


def test_no_datasets_are_no_elements() -> None:
    it = iter(_interleave([], 3))
    assert [next(it, END) for _ in range(2)] == [END, END]
    it.set_state(it.get_state())
    assert next(it, END) == END


@pytest.mark.parametrize("cycle_length", [0, -1])
def test_at_least_one_dataset_is_open(cycle_length: int) -> None:
    with pytest.raises(ValueError, match=f"cycle_length={cycle_length}"):
        _interleave([R(3)], cycle_length)


def test_it_has_no_parents() -> None:
    assert _interleave([R(3)], 1).parents == ()


# States.


def test_a_fresh_state_has_the_first_datasets_open() -> None:
    it = iter(_interleave(_tens(3, 3, 3), 2))
    assert it.get_state() == {
        "next_index_in_cycle": 0,
        "next_index_in_datasets": 2,
        "iterators_in_use_indices": [0, 1],
        "iterators_in_use_states": [{"next_index": 0}, {"next_index": 0}],
        "exhausted": [0, 0],
        "future_states": {},
    }
    assert list(it) == [10, 20, 11, 21, 12, 22, 30, 31, 32]
    assert it.get_state() == {
        "next_index_in_cycle": 1,
        "next_index_in_datasets": 3,
        "iterators_in_use_indices": [2, 1],
        "iterators_in_use_states": [{"next_index": 3}, {"next_index": 3}],
        "exhausted": [1, 1],
        "future_states": {},
    }


def test_restoring_leaves_the_given_state_alone() -> None:
    ds = _interleave(_tens(2, 3, 4, 2), 2)
    it = iter(ds)
    for _ in range(4):
        next(it)
    state = it.get_state()
    given = copy.deepcopy(state)
    for _ in range(3):
        it.set_state(given)
        rest = list(it)
        assert given == state
    restored = iter(ds)
    restored.set_state(given)
    assert list(restored) == rest


def test_a_rewound_iterator_does_not_call_its_datasets_exhausted() -> None:
    ds = _interleave(_tens(2, 3), 2)
    it = iter(ds)
    state = it.get_state()
    everything = list(it)
    it.set_state(state)
    assert it.get_state() == state
    next(it)
    again = iter(ds)
    again.set_state(it.get_state())
    assert list(again) == everything[1:]
    assert list(X.RepeatIterDataset(ds, 3)) == everything * 3


def test_a_state_of_another_number_of_datasets_is_refused() -> None:
    two = iter(_interleave(_tens(3, 3), 2)).get_state()
    for datasets, cycle_length in ((_tens(3, 3, 3), 3), (_tens(3), 1)):
        it = iter(_interleave(datasets, cycle_length))
        with pytest.raises(ValueError, match="state was taken with 2 datasets") as raised:
            it.set_state(two)
        assert f"are {cycle_length}" in str(raised.value)


def test_future_states_survive_json() -> None:
    ds = _interleave(_tens(3, 3, 3), 1)
    it = iter(ds)
    state = it.get_state()
    state["future_states"] = {2: {"next_index": 2}}
    it.set_state(json.loads(json.dumps(state)))
    assert it.get_state() == state
    assert list(it) == [10, 11, 12, 20, 21, 22, 32]


def test_shards_can_be_asked_for_and_set_one_by_one() -> None:
    ds = _interleave(_tens(3, 1, 4, 2, 5), 2)
    for step in range(16):
        it: Any = iter(ds)
        given = [next(it) for _ in range(step)] if step < 16 else []
        shards = json.loads(json.dumps(it.get_shard_states()))
        assert len(shards) == 5
        restored: Any = iter(ds)
        restored.set_shard_states(shards)
        rest = list(restored)
        assert sorted(given + rest) == sorted(ds)
        # A state taken in the middle of such a run restores too.
        restored.set_shard_states(shards)
        first = list(itertools.islice(restored, 2))
        again = iter(ds)
        again.set_state(json.loads(json.dumps(restored.get_state())))
        assert first + list(again) == rest


def test_it_resumes() -> None:
    for cycle_length in (1, 2, 3, 7):
        check_iter_dataset(_interleave(_tens(3, 1, 4, 0, 2), cycle_length))
    nested = _interleave([_interleave(_tens(2, 3), 2), _interleave(_tens(4), 1)], 2)
    check_iter_dataset(nested)
    batches: Any = [ds.to_iter_dataset().batch(2) for ds in _tens(3, 5, 2)]
    check_iter_dataset(_interleave(batches, 2))


# Errors and ends.


def test_a_failing_element_is_passed_over() -> None:
    datasets = [ds.map(fails_on(11, 20)) for ds in _tens(3, 3)]
    expected = [10, "element 20", "element 11", 21, 12, 22, END]
    for to_iter in (False, True):
        parts: list[Any] = [ds.to_iter_dataset().map(abs) for ds in datasets]
        ds = _interleave(parts if to_iter else datasets, 2)
        found = outcomes_and_states(iter(ds))
        assert [outcome for outcome, _ in found] == expected
        for step in range(len(found) - 1):
            restored = iter(ds)
            restored.set_state(found[step][1])
            assert outcomes(restored) == expected[step + 1 :]


def test_a_failing_element_is_passed_over_by_threads() -> None:
    datasets = [Sleepy(10, 3).map(fails_on(11)), Sleepy(20, 3).map(fails_on(20))]
    it = iter(_interleave(datasets, 2))
    it.start_prefetch()
    expected = [10, "element 20", "element 11", 21, 12, 22, END]
    assert finishes(lambda: outcomes(it)) == expected


def test_a_dataset_that_cannot_be_made_is_passed_over() -> None:
    def make(number: int) -> Any:
        if number == 1:
            raise Unreadable("file 1")
        return R(10 * number, 10 * number + 2)

    assert outcomes(iter(_interleave(R(3).map(make), 1))) == [0, 1, "file 1", 20, 21, END]


def test_closing_keeps_the_state() -> None:
    ds = _interleave(_tens(3, 3, 3), 2)
    for step in range(10):
        it = iter(ds)
        for _ in range(step):
            next(it)
        rest = list(ds)[step:]
        it.close()
        restored = iter(ds)
        restored.set_state(it.get_state())
        assert list(restored) == rest
        with pytest.raises(ValueError, match="closed"):
            next(it)
        with pytest.raises(ValueError, match="closed"):
            it.set_state(restored.get_state())
        restored = iter(ds)
        restored.set_state(it.get_state())
        assert list(restored) == rest


def test_threads_end_with_the_iterator() -> None:
    datasets = [Sleepy(10 * n, 50).to_iter_dataset().map(abs) for n in range(6)]
    it = iter(_interleave(datasets, 3, make_iter_buffer_size=2, iter_buffer_size=3))
    it.start_prefetch()
    for _ in range(20):
        next(it)
    assert our_threads()
    del it
    assert eventually(lambda: not our_threads())


def test_starting_to_prefetch_opens_and_reads_the_first_datasets() -> None:
    seen: list[int] = []

    def remember(element: int) -> int:
        seen.append(element)
        return element

    datasets = [ds.to_iter_dataset().map(remember) for ds in _tens(5, 5, 5)]
    it = iter(_interleave(datasets, 2, iter_buffer_size=2))
    it.start_prefetch()
    it.start_prefetch()
    assert eventually(lambda: {10, 11, 20, 21} <= set(seen))
    assert 30 not in seen
    it.close()
    with pytest.raises(ValueError, match="closed"):
        it.start_prefetch()
