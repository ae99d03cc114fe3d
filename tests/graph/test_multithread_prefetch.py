"""multithread_prefetch: the pipeline in several threads, each on its share."""

import gc
import itertools
import json
import sys
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import (
    END,
    CountingSource,
    R,
    X,
    as_lists,
    eventually,
    fails_on,
    finishes,
    our_threads,
    outcomes,
    source,
)
from wholegrain.testing import check_iter_dataset

_prefetch: Any = wg.experimental.multithread_prefetch


def _all(ds: Any) -> list[Any]:
    return finishes(lambda: list(ds))


@pytest.mark.parametrize("num_threads", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("buffer_size", [1, 4])
def test_one_to_one_pipelines_keep_their_order(num_threads: int, buffer_size: int) -> None:
    ds = R(20).shuffle(seed=1).to_iter_dataset().map(lambda x: x * 2)
    ds = ds.random_map(lambda x, rng: (x, int(rng.integers(1000))), seed=3)
    assert _all(_prefetch(ds, num_threads, buffer_size)) == list(ds)


def test_zero_threads_are_the_dataset_itself() -> None:
    ds = R(5).to_iter_dataset()
    assert _prefetch(ds, 0, 1) is ds


def test_each_thread_works_on_every_nth_element() -> None:
    ds = R(10).to_iter_dataset()
    batches = as_lists(_all(_prefetch(ds.batch(2), 2, 1)))
    assert batches == [[0, 2], [1, 3], [4, 6], [5, 7], [8], [9]]
    numbered = _all(_prefetch(R(6).to_iter_dataset().map_with_index(lambda i, x: (i, x)), 2, 1))
    assert numbered == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
    by_index = R(10).batch(2).to_iter_dataset()
    assert as_lists(_all(_prefetch(by_index, 3, 1))) == as_lists(by_index)


def test_or_on_a_part_of_the_sources() -> None:
    ds = R(10).to_iter_dataset()
    expected = [0, 4, 7, 1, 5, 8, 2, 6, 9, 3]
    assert _all(_prefetch(ds, 3, 1, sequential_slice=True)) == expected
    shuffled = R(100).shuffle(seed=1).to_iter_dataset()
    first = _all(_prefetch(shuffled, 2, 1, sequential_slice=True))[::2]
    assert sorted(first) == list(range(50))
    assert first != sorted(first)
    mixed = wg.MapDataset.mix([R(10), source(list(range(100, 110)))]).to_iter_dataset()
    assert sorted(_all(_prefetch(mixed, 2, 1, sequential_slice=True))) == sorted(mixed)


def test_every_element_is_read_once() -> None:
    for num_threads in (2, 3):
        for sequential in (False, True):
            records = CountingSource(50)
            ds = source(records).shuffle(seed=1).to_iter_dataset(wg.ReadOptions(2, 2))
            found = _all(_prefetch(ds.filter(lambda _: True), num_threads, 2, sequential))
            assert sorted(found) == list(range(50))
            assert sorted(records.reads) == list(range(50))


def test_more_threads_than_elements() -> None:
    assert _all(_prefetch(R(2).to_iter_dataset(), 5, 1)) == [0, 1]
    assert _all(_prefetch(R(0).to_iter_dataset(), 3, 1)) == []


def test_several_inputs_are_dealt_out_each() -> None:
    one, two = R(6).to_iter_dataset(), R(10, 16).to_iter_dataset()
    zipped = X.ZipIterDataset([one, two])
    assert _all(_prefetch(zipped, 2, 1)) == list(zipped)
    mixed = wg.IterDataset.mix([one, two])
    assert sorted(_all(_prefetch(mixed, 2, 1))) == sorted(mixed)
    interleaved = X.InterleaveIterDataset([one, two, one], cycle_length=2)
    assert sorted(_all(_prefetch(interleaved, 2, 1))) == sorted(interleaved)


def test_map_datasets_that_are_iterated_over_are_dealt_out() -> None:
    mixed = wg.IterDataset.mix([R(4), R(10, 14)])
    for sequential in (False, True):
        assert sorted(_all(_prefetch(mixed, 2, 1, sequential))) == sorted(mixed)
    with_options = X.WithOptionsIterDataset(R(6), X.DatasetOptions())
    assert _all(_prefetch(with_options, 2, 1)) == [0, 1, 2, 3, 4, 5]


# Datasets of the user's.


class Numbers(wg.IterDataset[int]):
    """Cannot be split among workers."""

    def __iter__(self) -> wg.DatasetIterator[int]:
        return iter(R(4).to_iter_dataset())  # type: ignore[no-any-return]


class Sliceable(wg.IterDataset[int]):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = list(range(10))

    def set_slice(self, sl: slice, sequential_slice: bool) -> None:
        assert sequential_slice is False
        self.numbers = self.numbers[sl]

    def __iter__(self) -> wg.DatasetIterator[int]:
        return iter(source(self.numbers).to_iter_dataset())  # type: ignore[no-any-return]


class Passing(wg.IterDataset[Any]):
    """Knows its parent by a name of its own."""

    def __init__(self, parent: Any, others: Any = ()) -> None:
        super().__init__([parent, *others])
        self._first = parent
        self._named = {"others": parent}
        self._listed = [parent]

    def __iter__(self) -> wg.DatasetIterator[Any]:
        assert self._first is self._named["others"] is self._listed[0] is self.parents[0]
        return self._first.__iter__()  # type: ignore[no-any-return]


def test_a_source_that_cannot_be_dealt_out_needs_one_thread() -> None:
    assert _all(_prefetch(Numbers().map(abs), 1, 1)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="Cannot slice `IterDataset` source") as raised:
        _prefetch(Numbers().map(abs), 2, 1)
    assert "set_slice" in str(raised.value)
    assert "InterleaveIterDataset" in str(raised.value)


def test_a_dataset_may_say_how_it_is_dealt_out() -> None:
    ds = Sliceable()
    assert _all(_prefetch(ds, 3, 1)) == list(range(10))
    assert ds.numbers == list(range(10))


def test_a_dataset_may_know_its_parent_by_its_own_names() -> None:
    ds = Passing(R(6).to_iter_dataset(), [R(2).to_iter_dataset()])
    assert _all(_prefetch(ds.map(abs), 2, 1)) == [0, 1, 2, 3, 4, 5]
    assert list(ds) == [0, 1, 2, 3, 4, 5]


class Doubled(wg.MapDataset[int]):
    """Does not know slices."""

    def __len__(self) -> int:
        return 2 * len(self._parent)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        return self._parent[index // 2]


def test_a_map_dataset_need_not_know_slices() -> None:
    ds = Doubled(R(5)).to_iter_dataset()
    assert _all(_prefetch(ds, 3, 1)) == list(ds)
    assert sorted(_all(_prefetch(ds, 2, 1, sequential_slice=True))) == sorted(ds)


# States.


def test_there_is_a_state_for_each_thread() -> None:
    it = iter(_prefetch(R(10).to_iter_dataset(), 2, 3))
    for _ in range(3):
        next(it)
    assert it.get_state() == {
        "next_index_in_cycle": 1,
        "next_index_in_datasets": 2,
        "iterators_in_use_indices": [0, 1],
        "iterators_in_use_states": [{"next_index": 2}, {"next_index": 1}],
        "exhausted": [0, 0],
        "future_states": {},
    }
    it.close()


def test_it_resumes() -> None:
    for num_threads in (1, 3):
        ds = R(8).to_iter_dataset()
        check_iter_dataset(_prefetch(ds, num_threads, 2), max_restores=6)
        check_iter_dataset(_prefetch(ds.batch(2), num_threads, 2), max_restores=6)
        filtered = _prefetch(ds.filter(lambda x: x % 3 == 0), num_threads, 1)
        check_iter_dataset(filtered, max_restores=6)
        check_iter_dataset(_prefetch(ds, num_threads, 1).batch(3), max_restores=6)


def test_a_state_without_threads_restores_with_them_and_back() -> None:
    ds = R(12).shuffle(seed=2).to_iter_dataset()
    ds = ds.random_map(lambda x, rng: (x, int(rng.integers(100))), seed=1)
    everything = list(ds)
    for step in range(13):
        for workers, other in itertools.permutations((1, 2, 3), 2):
            it = iter(_prefetch(ds, workers, 1))
            for _ in range(step):
                next(it)
            restored = iter(_prefetch(ds, other, 1))
            restored.set_state(json.loads(json.dumps(it.get_state())))
            assert _all(restored) == everything[step:]
            it.close()


def test_a_state_of_another_number_of_threads_is_refused_where_the_order_differs() -> None:
    ds = R(12).to_iter_dataset().batch(2)
    state = iter(_prefetch(ds, 2, 1)).get_state()
    it = iter(_prefetch(ds, 3, 1))
    with pytest.raises(ValueError, match="2 workers, but here are 3"):
        it.set_state(state)


def test_repeating_keeps_the_threads() -> None:
    ds = X.RepeatIterDataset(_prefetch(R(6).to_iter_dataset(), 2, 1), 3)
    assert _all(ds) == [0, 1, 2, 3, 4, 5] * 3


# Errors and ends.


@pytest.mark.parametrize("num_threads", [-1, -5])
def test_a_negative_number_is_refused(num_threads: int) -> None:
    with pytest.raises(ValueError, match=str(num_threads)):
        _prefetch(R(3).to_iter_dataset(), num_threads, 1)


def test_a_failing_element_is_raised_in_its_place() -> None:
    ds = R(8).to_iter_dataset().map(fails_on(2, 5))
    expected = [0, 1, "element 2", 3, 4, "element 5", 6, 7, END]
    for num_threads in (1, 2, 3):
        it = iter(_prefetch(ds, num_threads, 2))
        assert finishes(lambda it=it: outcomes(it)) == expected  # type: ignore[misc]


def test_a_pipeline_in_workers_cannot_be_split_again() -> None:
    ds = _prefetch(R(8).to_iter_dataset(), 2, 1)
    with pytest.raises(ValueError, match="split among workers again"):
        _prefetch(ds, 2, 1)
    assert _all(_prefetch(ds, 1, 1)) == list(range(8))


def test_threads_end_with_the_iterator() -> None:
    gc.disable()
    try:
        for end in ("close", "drop"):
            it = iter(_prefetch(R(10**6).to_iter_dataset().map(abs), 3, 2))
            it.start_prefetch()
            for _ in range(10):
                next(it)
            assert our_threads()
            if end == "close":
                it.close()
                with pytest.raises(ValueError, match="closed"):
                    next(it)
            del it
            assert eventually(lambda: not our_threads())
    finally:
        gc.enable()


def test_elements_may_be_large() -> None:
    ds = R(6).map(lambda x: np.full(1 << 16, x)).to_iter_dataset()
    assert [array[0] for array in _all(_prefetch(ds, 2, 1))] == [0, 1, 2, 3, 4, 5]


def test_infinite_datasets_are_dealt_out() -> None:
    ds = R(5).repeat().to_iter_dataset()
    it = iter(_prefetch(ds, 3, 2))
    assert list(itertools.islice(it, 12)) == [0, 1, 2, 3, 4] * 2 + [0, 1]
    assert len(R(5).repeat()) == sys.maxsize
    it.close()
