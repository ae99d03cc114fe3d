"""to_iter_dataset: one epoch in order, read ahead within bounds that the user sets."""

import contextlib
import gc
import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import (
    END,
    READ_OPTIONS,
    CountingSource,
    R,
    eventually,
    finishes,
    our_threads,
    source,
)
from wholegrain.testing import check_iter_dataset


def test_one_epoch_in_order() -> None:
    assert list(R(5).to_iter_dataset()) == [0, 1, 2, 3, 4]
    assert list(R(5)) == [0, 1, 2, 3, 4]
    assert isinstance(iter(R(5)), wg.DatasetIterator)


def test_the_end_stays_the_end() -> None:
    for options in READ_OPTIONS:
        it = iter(R(3).to_iter_dataset(options))
        assert [next(it, END) for _ in range(6)] == [0, 1, 2, END, END, END]
        assert it.get_state() == {"next_index": 3}


def test_iterators_are_independent() -> None:
    ds = R(5).to_iter_dataset()
    one, two = iter(ds), iter(ds)
    assert [next(one), next(one), next(two), next(one)] == [0, 1, 0, 2]
    two.set_state({"next_index": 4})
    assert [next(one), next(two)] == [3, 4]


def test_missing_elements_are_left_out_or_given_as_none() -> None:
    ds = source([1, None, None, 4, None])
    assert list(ds) == [1, 4]
    assert list(ds.to_iter_dataset(allow_nones=True)) == [1, None, None, 4, None]
    it = iter(ds)
    states = [it.get_state(), *(it.get_state() for _ in it)]
    assert [state["next_index"] for state in states] == [0, 1, 4]
    assert it.get_state() == {"next_index": 5}


def test_the_length_is_that_of_the_beginning() -> None:
    elements = [0, 1, 2]
    it = iter(source(elements).to_iter_dataset())
    elements += [3, 4]
    assert list(it) == [0, 1, 2]


# Nothing happens before it has to.


def test_building_and_opening_a_pipeline_reads_nothing() -> None:
    records = CountingSource(100)
    ds = source(records).shuffle(seed=1).map(abs).filter(bool)[1:90].repeat(2)
    it_ds = ds.to_iter_dataset().map(abs).filter(bool).batch(2).map_with_index(lambda _, x: x)
    it = iter(it_ds)
    it.get_state()
    it.set_state(it.get_state())
    time.sleep(0.02)
    assert records.reads == []
    next(it)
    assert records.reads


def test_only_what_is_asked_for_is_read_by_index() -> None:
    records = CountingSource(100)
    ds = source(records).map(abs)
    ds[7], ds[3]
    assert records.reads == [7, 3]


def test_nothing_is_read_behind_the_end_or_before_the_start() -> None:
    for options in READ_OPTIONS:
        records = CountingSource(50, seconds=0.0005)
        it = iter(source(records).to_iter_dataset(options))
        it.set_state({"next_index": 30})
        assert finishes(lambda it=it: list(it)) == list(range(30, 50))  # type: ignore[misc]
        assert sorted(records.reads) == list(range(30, 50))


# Threads.


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("buffer_size", [1, 2, 7])
def test_threads_and_buffer_are_upper_bounds(num_threads: int, buffer_size: int) -> None:
    records = CountingSource(60, seconds=0.001)
    options = wg.ReadOptions(num_threads=num_threads, prefetch_buffer_size=buffer_size)

    def run() -> None:
        for taken, element in enumerate(source(records).to_iter_dataset(options), 1):
            assert element == taken - 1
            assert len(records.reads) <= taken + buffer_size

    finishes(run)
    assert records.most_at_once <= num_threads
    assert sorted(records.reads) == list(range(60))


def test_reads_that_wait_are_done_at_the_same_time() -> None:
    records = CountingSource(100, seconds=0.005)
    options = wg.ReadOptions(num_threads=8, prefetch_buffer_size=30)
    assert finishes(lambda: list(source(records).to_iter_dataset(options))) == list(range(100))
    assert records.most_at_once > 1


@pytest.mark.parametrize(
    "options",
    [wg.ReadOptions(num_threads=0), wg.ReadOptions(prefetch_buffer_size=0), wg.ReadOptions(0, 0)],
)
def test_zero_reads_in_the_callers_thread(options: wg.ReadOptions) -> None:
    records = CountingSource(30, seconds=0.001)
    assert list(source(records).to_iter_dataset(options)) == list(range(30))
    assert records.threads == {threading.current_thread().name}
    assert records.reads == list(range(30))
    assert our_threads() == []


def test_a_range_is_read_in_the_callers_thread_by_default() -> None:
    names = set()

    def remember(element: int) -> int:
        names.add(threading.current_thread().name)
        time.sleep(0.001)
        return element

    list(R(20).to_iter_dataset().map(remember))
    assert names == {threading.current_thread().name}
    assert "prefetch_buffer_size=0" in str(R(3).to_iter_dataset())
    assert "prefetch_buffer_size=500" in str(R(3).map(abs).to_iter_dataset())


def test_elements_that_take_unequal_time_stay_in_order() -> None:
    delays = np.random.default_rng(0).permutation(60) * 1e-4

    def slow(element: int) -> int:
        time.sleep(delays[element])
        return element

    options = wg.ReadOptions(num_threads=6, prefetch_buffer_size=20)
    assert finishes(lambda: list(R(60).map(slow).to_iter_dataset(options))) == list(range(60))


def test_start_prefetch_fills_the_buffer() -> None:
    records = CountingSource(100)
    options = wg.ReadOptions(num_threads=2, prefetch_buffer_size=5)
    it = iter(source(records).to_iter_dataset(options).map(abs).batch(2))
    it.start_prefetch()
    it.start_prefetch()
    assert eventually(lambda: len(records.reads) == 5)
    assert it.get_state() == {"next_index": 0}
    time.sleep(0.02)
    assert sorted(records.reads) == [0, 1, 2, 3, 4]
    assert next(it).tolist() == [0, 1]
    assert eventually(lambda: len(records.reads) >= 6)
    assert len(records.reads) <= 7
    it.close()


def test_start_prefetch_does_nothing_without_threads() -> None:
    records = CountingSource(100)
    it = iter(source(records).to_iter_dataset(wg.ReadOptions(0)))
    it.start_prefetch()
    time.sleep(0.02)
    assert records.reads == []
    assert next(it) == 0


def test_start_prefetch_at_the_end_does_nothing() -> None:
    it = iter(source([1, 2]).to_iter_dataset())
    list(it)
    it.start_prefetch()
    assert next(it, END) == END
    assert our_threads() == []


def test_a_state_is_that_of_what_was_handed_out() -> None:
    it = iter(source(CountingSource(100)).to_iter_dataset(wg.ReadOptions(3, 20)))
    it.start_prefetch()
    for taken in range(1, 101):
        next(it)
        assert it.get_state() == {"next_index": taken}


def test_set_state_goes_back_and_forth() -> None:
    for options in READ_OPTIONS:
        it = iter(source(CountingSource(50, seconds=0.0003)).to_iter_dataset(options))

        def run(it: Any = it) -> None:
            for index in (10, 3, 3, 49, 50, 0, 25):
                it.set_state({"next_index": index})
                assert it.get_state() == {"next_index": index}
                expected = list(range(index, min(index + 4, 50)))
                assert list(itertools.islice(it, 4)) == expected

        finishes(run)
        it.close()


def _readers() -> set[int]:
    """Return the ids of the readers that exist."""
    gc.collect()
    return {id(o) for o in gc.get_objects() if type(o).__name__ == "ReadAhead"}


def test_many_jumps_leave_no_threads_and_no_memory_behind() -> None:
    before = _readers()  # Of earlier tests, whose threads may still run.
    options = wg.ReadOptions(num_threads=2, prefetch_buffer_size=4)
    it = iter(R(1000).map(lambda x: np.full(1000, x)).to_iter_dataset(options))
    for jump in range(50):
        it.set_state({"next_index": jump})
        it.start_prefetch()
        assert next(it)[0] == jump
    assert eventually(lambda: len(our_threads()) <= 4)
    assert eventually(lambda: len(_readers() - before) <= 2)
    it.close()


# Where threads end.


def _running() -> Any:
    it = iter(source(CountingSource(10**6, seconds=0.002)).to_iter_dataset(wg.ReadOptions(4, 8)))
    it.start_prefetch()
    for _ in range(5):
        next(it)
    assert our_threads()
    return it


def test_close_ends_the_threads() -> None:
    it = _running()
    it.close()
    it.close()
    assert eventually(lambda: not our_threads())
    assert it.get_state() == {"next_index": 5}


def test_dropping_the_iterator_ends_the_threads() -> None:
    gc.disable()  # Without the garbage collector: nothing may hold the iterator.
    try:
        it = _running()
        del it
        assert eventually(lambda: not our_threads())
    finally:
        gc.enable()


def test_dropping_a_pipeline_over_it_ends_the_threads() -> None:
    gc.disable()
    try:
        ds = source(CountingSource(10**6, seconds=0.001)).to_iter_dataset(wg.ReadOptions(4, 8))
        ds = ds.map(abs).filter(lambda _: True).random_map(lambda x, _: x, seed=1).batch(2)
        it = iter(ds)
        it.start_prefetch()
        for _ in range(5):
            next(it)
        assert our_threads()
        del it
        assert eventually(lambda: not our_threads())
    finally:
        gc.enable()


def test_leaving_a_loop_ends_the_threads() -> None:
    ds = source(CountingSource(10**6, seconds=0.002)).to_iter_dataset(wg.ReadOptions(4, 8))

    def leave() -> int:
        for element in ds:
            if element == 5:
                return element  # type: ignore[no-any-return]
        raise AssertionError

    assert finishes(leave) == 5
    assert eventually(lambda: not our_threads())


def test_an_error_in_the_loop_ends_the_threads() -> None:
    ds = source(CountingSource(10**6, seconds=0.002)).to_iter_dataset(wg.ReadOptions(4, 8))

    def fail() -> None:
        for element in ds:
            if element == 5:
                raise KeyError("in the loop")

    with pytest.raises(KeyError, match="in the loop"):
        finishes(fail)
    gc.collect()  # The error knows the loop, and who knows who knows the error.
    assert eventually(lambda: not our_threads())


def test_reading_to_the_end_ends_the_threads() -> None:
    it = iter(source(CountingSource(50, seconds=0.002)).to_iter_dataset(wg.ReadOptions(4, 8)))
    assert finishes(lambda: list(it)) == list(range(50))
    assert eventually(lambda: not our_threads())


def test_an_iterator_is_a_context_that_closes_it() -> None:
    with _running() as it:
        next(it)
    assert eventually(lambda: not our_threads())
    with pytest.raises(ValueError, match="closed"):
        next(it)


# Chunks.


def test_a_source_that_reads_many_at_once_is_asked_for_many_at_once() -> None:
    calls: list[list[int]] = []

    class Bulk:
        def __len__(self) -> int:
            return 3000

        def __getitem__(self, index: int) -> int:
            calls.append([index])
            return index

        def __getitems__(self, indices: list[int]) -> list[int]:
            assert type(indices) is list
            assert all(type(index) is int for index in indices)
            calls.append(indices)
            return list(indices)

    for options in READ_OPTIONS:
        calls.clear()
        ds = source(Bulk()).shuffle(seed=1).map(abs).to_iter_dataset(options)
        assert sorted(ds) == list(range(3000))
        if options.prefetch_buffer_size != 1:
            assert len(calls) < 1500


def test_the_first_element_does_not_wait_for_a_chunk() -> None:
    records = CountingSource(1000)
    next(iter(source(records).to_iter_dataset(wg.ReadOptions(0))))
    assert records.reads == [0]


def test_it_resumes() -> None:
    for options in READ_OPTIONS:
        check_iter_dataset(R(11).map(abs).to_iter_dataset(options))
        check_iter_dataset(R(11).filter(lambda x: x % 3 == 0).to_iter_dataset(options))
        check_iter_dataset(R(11).filter(lambda x: x % 3).to_iter_dataset(options, allow_nones=True))


class _Names:
    """Notes under which thread names it is read, and fails where they have no number."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.names: list[str] = []

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        self.names.append(threading.current_thread().name)
        return index


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("starts", [False, True])
def test_readers_are_known_by_the_number_in_the_name_of_the_thread(
    num_threads: int, starts: bool
) -> None:
    names = _Names(300)
    options = wg.ReadOptions(num_threads, 8)
    with contextlib.closing(iter(wg.MapDataset.source(names).to_iter_dataset(options))) as it:
        if starts:
            it.start_prefetch()
        assert list(it) == list(range(300))
    assert {name.rpartition("_")[0] for name in names.names} == {"grain-prefetch"}
    assert {int(name.rpartition("_")[2]) for name in names.names} <= set(range(num_threads))
    assert threading.current_thread().name == "MainThread"


def test_without_reader_threads_the_name_of_the_thread_is_left_alone() -> None:
    names = _Names(30)
    assert list(wg.MapDataset.source(names).to_iter_dataset(wg.ReadOptions(0))) == list(range(30))
    assert set(names.names) == {threading.current_thread().name}


def test_a_reader_of_a_data_loader_is_known_by_its_number() -> None:
    names = _Names(30)
    sampler = wg.samplers.SequentialSampler(30)
    loader = wg.DataLoader(
        data_source=names, sampler=sampler, read_options=wg.ReadOptions(2, 4), worker_count=0
    )
    assert list(loader) == list(range(30))
    assert all(name.startswith("grain-prefetch_") for name in names.names)


def test_the_buffer_fills_after_the_first_element() -> None:
    class Slow:
        def __init__(self) -> None:
            self.read: list[int] = []

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            time.sleep(0.02)
            self.read.append(index)
            return index

    source = Slow()
    it = iter(wg.MapDataset.source(source).to_iter_dataset(wg.ReadOptions(4, 16)))
    next(it)
    # While the first training step compiles, threads read as far as the buffer allows.
    assert eventually(lambda: len(source.read) >= 16)
    it.close()
