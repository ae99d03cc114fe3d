"""An element that fails is raised in its place, consumed, and the rest comes as if nothing was.

The same holds for every stage and every way of reading.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import (
    END,
    READ_OPTIONS,
    CountingSource,
    R,
    Unreadable,
    X,
    as_lists,
    fails_on,
    finishes,
    outcomes,
    outcomes_and_states,
    source,
)

# What stands for each element when 3 and 7 of 10 fail.
_EXPECTED = [0, 1, 2, "element 3", 4, 5, 6, "element 7", 8, 9, END]
_AFTER = [*range(1, 11), 10]


def _slowly(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def slow(element: Any) -> Any:
        time.sleep(0.002)
        return function(element)

    return slow


@pytest.mark.parametrize("options", READ_OPTIONS)
@pytest.mark.parametrize("slow", [False, True])
def test_reading_by_index_and_in_threads(options: wg.ReadOptions, slow: bool) -> None:
    function = fails_on(3, 7)
    ds = R(10).map(_slowly(function) if slow else function).to_iter_dataset(options)
    found = finishes(lambda: outcomes_and_states(iter(ds)))
    assert [outcome for outcome, _ in found] == _EXPECTED
    assert [state["next_index"] for _, state in found] == _AFTER


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_records_that_cannot_be_read(options: wg.ReadOptions) -> None:
    for seconds in (0.0, 0.002):
        records = CountingSource(30, seconds, fails_at=[0, 11, 12, 29])
        it = iter(source(records).to_iter_dataset(options))
        expected = [f"record {i}" if i in (0, 11, 12, 29) else i for i in range(30)] + [END]
        assert finishes(lambda it=it: outcomes(it)) == expected  # type: ignore[misc]


def test_everything_may_fail() -> None:
    def fail(element: int) -> int:
        raise Unreadable(f"element {element}")

    expected = [f"element {i}" for i in range(40)] + [END]
    for options in READ_OPTIONS:
        assert outcomes(iter(R(40).map(fail).to_iter_dataset(options))) == expected
    assert outcomes(iter(R(40).to_iter_dataset().map(fail))) == expected
    assert outcomes(iter(R(40).to_iter_dataset().filter(fail))) == expected


def _pair(_: int, element: Any) -> Any:
    return fails_on(3, 7)(element)


def _random(element: Any, _: Any) -> Any:
    return fails_on(3, 7)(element)


def _kept(element: Any) -> bool:
    fails_on(3, 7)(element)
    return True


_STAGES: dict[str, Callable[[], wg.IterDataset[Any]]] = {
    "map by index": lambda: R(10).map(fails_on(3, 7)).to_iter_dataset(),
    "filter by index": lambda: R(10).filter(_kept).to_iter_dataset(),
    "map_with_index by index": lambda: R(10).map_with_index(_pair).to_iter_dataset(),
    "random_map by index": lambda: R(10).random_map(_random, seed=1).to_iter_dataset(),
    "map": lambda: R(10).to_iter_dataset().map(fails_on(3, 7)),
    "filter": lambda: R(10).to_iter_dataset().filter(_kept),
    "map_with_index": lambda: R(10).to_iter_dataset().map_with_index(_pair),
    "random_map": lambda: R(10).to_iter_dataset().random_map(_random, seed=1),
    "batch_fn": lambda: (
        R(10).to_iter_dataset().batch(1, batch_fn=lambda members: fails_on(3, 7)(members[0]))
    ),
    "batch_fn by index": lambda: (
        R(10).batch(1, batch_fn=lambda members: fails_on(3, 7)(members[0])).to_iter_dataset()
    ),
    "a user's iterator": lambda: _Passing(R(10).to_iter_dataset().map(fails_on(3, 7))),
}


class _Passing(wg.IterDataset[Any]):
    def __iter__(self) -> wg.DatasetIterator[Any]:
        return _PassingIterator(self._parent.__iter__())


class _PassingIterator(wg.DatasetIterator[Any]):
    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> dict[str, Any]:
        return {"mine": self._parent.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state["mine"])


_BEHIND: dict[str, Callable[[wg.IterDataset[Any]], wg.IterDataset[Any]]] = {
    "nothing": lambda ds: ds,
    "map": lambda ds: ds.map(lambda x: x),
    "maps": lambda ds: ds.map(lambda x: x).map(lambda x: x).random_map(lambda x, _: x, seed=1),
    "map_with_index": lambda ds: ds.map_with_index(lambda _, x: x),
    "filter": lambda ds: ds.filter(lambda _: True),
    "filter and map": lambda ds: ds.filter(lambda _: True).map(lambda x: x),
    "batches of one": lambda ds: ds.batch(1, batch_fn=lambda members: members[0]),
    "seed": lambda ds: ds.seed(1),
    "options": lambda ds: X.WithOptionsIterDataset(ds, X.DatasetOptions()),
    "limit": lambda ds: X.LimitIterDataset(ds, 100),
    "repeat": lambda ds: X.RepeatIterDataset(ds, 1),
    "cache": lambda ds: X.CacheIterDataset(ds),
    "windows of one": lambda ds: X.WindowShuffleIterDataset(ds, window_size=1, seed=1),
    "a mixture": lambda ds: wg.IterDataset.mix([ds]),
    "a zip": lambda ds: X.ZipIterDataset([ds]).map(lambda pair: pair[0]),
    "interleave": lambda ds: X.InterleaveIterDataset([ds], cycle_length=1),
    "no thread": lambda ds: X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=0),
    "a thread": lambda ds: X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=1),
    "a thread far ahead": lambda ds: X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=50),
    "one worker thread": lambda ds: X.multithread_prefetch(ds, 1, 2),
    "a user's iterator": _Passing,
    "a user's iterator and more": lambda ds: _Passing(ds).map(lambda x: x).filter(lambda _: True),
}


@pytest.mark.parametrize("behind", _BEHIND)
@pytest.mark.parametrize("stage", _STAGES)
def test_every_stage_goes_on(stage: str, behind: str) -> None:
    ds = _BEHIND[behind](_STAGES[stage]())
    found = finishes(lambda: outcomes_and_states(iter(ds)))
    assert [outcome for outcome, _ in found] == _EXPECTED
    # A state goes on where it was taken, also right behind an element that failed.
    for step in (2, 3, 4, 7):
        if behind == "cache" and step > 3:
            continue  # To fill itself again, it reads what failed once more.
        restored = iter(ds)
        restored.set_state(found[step][1])
        assert finishes(lambda it=restored: outcomes(it)) == _EXPECTED[step + 1 :]  # type: ignore[misc]
        restored.close()


@pytest.mark.parametrize("stage", _STAGES)
def test_a_batch_drops_what_it_had_collected(stage: str) -> None:
    ds = _STAGES[stage]()
    found = outcomes_and_states(iter(ds.batch(2, batch_fn=list)))
    expected = [[0, 1], "element 3", [4, 5], "element 7", [8, 9], END]
    assert [outcome for outcome, _ in found] == expected
    restored = iter(ds.batch(2, batch_fn=list))
    restored.set_state(found[1][1])
    assert outcomes(restored) == expected[2:]


@pytest.mark.parametrize("stage", _STAGES)
def test_a_batch_by_numbers_goes_on(stage: str) -> None:
    for size, expected in (
        (3, [[0, 1, 2], "element 3", [4, 5, 6], "element 7", [8, 9], END]),
        (4, ["element 3", "element 7", [8, 9], END]),
        (20, ["element 3", "element 7", [8, 9], END]),
    ):
        assert as_lists(outcomes(iter(_STAGES[stage]().batch(size)))) == expected


def test_what_was_kept_before_a_failure_is_counted() -> None:
    # The filter reads on behind the elements that it keeps, and meets one that fails.
    ds = R(10).map(fails_on(3)).to_iter_dataset().filter(lambda x: x % 2 == 0)
    limited = X.LimitIterDataset(ds, 4)
    it = iter(limited.batch(3))
    with pytest.raises(Unreadable):
        next(it)
    assert it.get_state()["count_elements_read"] == 2
    assert as_lists(it) == [[4, 6]]


def test_a_batch_by_index_fails_as_a_whole() -> None:
    it = iter(R(10).map(fails_on(3)).batch(2))
    assert as_lists(outcomes(it)) == [[0, 1], "element 3", [4, 5], [6, 7], [8, 9], END]
    with pytest.raises(Unreadable):
        R(10).map(fails_on(3)).batch(2)[1]


def test_a_stack_that_does_not_fit_is_passed_over() -> None:
    elements = [np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2)]
    for ds in (source(elements).batch(2), source(elements).to_iter_dataset().batch(2)):
        it = iter(ds)
        assert next(it).shape == (2, 2)
        with pytest.raises(ValueError, match="Cannot batch"):
            next(it)
        assert next(it).shape == (2, 2)
        assert next(it, END) is END


def test_an_error_that_would_not_come_again_is_raised_in_its_place() -> None:
    failures = [Unreadable("once")]

    def flaky(element: int) -> int:
        if element == 20 and failures:
            raise failures.pop()
        return element

    for options in READ_OPTIONS:
        failures[:] = [Unreadable("once")]
        found = outcomes(iter(R(100).map(flaky).to_iter_dataset(options)))
        assert found == [*range(20), "once", *range(21, 100), END]


def test_what_is_no_exception_goes_through_and_its_element_is_read_again() -> None:
    interrupts: list[BaseException] = [KeyboardInterrupt(), KeyboardInterrupt()]

    def interrupted(element: int) -> int:
        if element == 10 and interrupts:
            raise interrupts.pop()
        return element

    found: list[int] = []
    it = iter(R(30).map(interrupted).to_iter_dataset(wg.ReadOptions(0)))
    while len(found) < 30:
        try:
            found.append(next(it))
        except KeyboardInterrupt:
            if not interrupts:  # To find its position, it may have to read elements again.
                assert it.get_state() == {"next_index": len(found)}
    assert found == list(range(30))
    assert not interrupts


@pytest.mark.parametrize("num_threads", [1, 3])
def test_what_is_no_exception_is_raised_once_out_of_a_reader_thread(num_threads: int) -> None:
    calls: list[int] = []

    def leaves(element: int) -> int:
        time.sleep(0.002)
        calls.append(element)
        if element in (10, 20):
            raise SystemExit(element)
        return element

    def run() -> list[Any]:
        found: list[Any] = []
        it = iter(R(30).map(leaves).to_iter_dataset(wg.ReadOptions(num_threads, 8)))
        it.start_prefetch()
        while len(found) < 30:
            try:
                found.append(next(it))
            except SystemExit as error:
                found.append(str(error.code))
        return found

    expected = [str(i) if i in (10, 20) else i for i in range(30)]
    assert finishes(run) == expected
    assert sorted(calls) == list(range(30))


@pytest.mark.parametrize("behind", ["a thread", "interleave", "one worker thread"])
def test_a_function_may_call_for_the_end_of_the_program(behind: str) -> None:
    def leave(element: int) -> int:
        if element == 3:
            raise SystemExit("enough")
        return element

    def run() -> list[int]:
        it = iter(_BEHIND[behind](R(6).to_iter_dataset().map(leave)))
        found = [next(it) for _ in range(3)]
        with pytest.raises(SystemExit, match="enough"):
            next(it)
        it.close()
        return found

    assert finishes(run) == [0, 1, 2]


class _Stream:
    """Gives the next of its records, whatever the index, and ends with StopIteration."""

    def __init__(self, length: int) -> None:
        self._records = iter(range(length))
        self._lock = threading.Lock()
        self.calls = 0

    def __len__(self) -> int:
        return 10**10

    def __getitem__(self, index: int) -> int:
        with self._lock:
            self.calls += 1
            return next(self._records)


@pytest.mark.parametrize("num_threads", [0, 1])
@pytest.mark.parametrize("length", [7, 50, 1000])
def test_a_source_that_keeps_a_position_of_its_own_loses_no_record(
    num_threads: int, length: int
) -> None:
    options = wg.ReadOptions(num_threads, 4)
    stream = _Stream(length)
    assert list(source(stream).map(lambda x: x).to_iter_dataset(options)) == list(range(length))
    stream = _Stream(length)
    loader = wg.DataLoader(
        data_source=stream,
        sampler=wg.samplers.SequentialSampler(len(stream)),
        worker_count=0,
        read_options=options,
    )
    assert list(loader) == list(range(length))
    if not num_threads:
        assert stream.calls == length + 1


class _FlakyBulk(CountingSource):
    """Fails once to read many records at once."""

    failed = 0

    def __getitems__(self, indices: Any) -> list[int]:
        if 40 in indices and not self.failed:
            self.failed += 1
            raise Unreadable("many at once")
        return [self[index] for index in indices]


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_an_error_of_a_bulk_read_that_no_single_read_has_is_raised_once(
    options: wg.ReadOptions,
) -> None:
    records = _FlakyBulk(100)
    it = iter(source(records).shuffle(seed=1).map(lambda x: x).to_iter_dataset(options))
    found = outcomes(it)
    if records.failed:  # It is not asked for single records.
        assert found.count("many at once") == 1
        found.remove("many at once")
    assert found == [*R(100).shuffle(seed=1), END]
    assert sorted(records.reads) == list(range(100))


def test_an_error_of_a_bulk_read_for_one_batch_is_raised_by_its_index() -> None:
    ds = source(_FlakyBulk(100)).batch(100)
    with pytest.raises(Unreadable, match="many at once"):
        ds[0]
    assert ds[0].tolist() == list(range(100))


def test_a_predicate_whose_truth_cannot_be_told_fails_at_its_element() -> None:
    ds = source(list(range(12))).to_iter_dataset()
    it = iter(ds.filter(lambda x: np.array([1, 2]) if x == 7 else True))
    got: list[Any] = []
    for _ in range(12):
        try:
            got.append(next(it))
        except ValueError as error:
            got.append("ambiguous" in str(error))
    assert got == [*range(7), True, *range(8, 12)]
    assert next(it, END) == END


def test_zipped_datasets_stay_together_after_a_function_that_exits() -> None:
    def leave_at_two(x: int) -> int:
        if x == 2:
            raise SystemExit
        return x

    numbers = source(list(range(5))).to_iter_dataset()
    it = iter(X.ZipIterDataset([numbers.map(leave_at_two), numbers]))
    got: list[Any] = []
    while True:
        try:
            got.append(next(it))
        except SystemExit:
            got.append("exit")
        except StopIteration:
            break
    assert got == [(0, 0), (1, 1), "exit", (3, 3), (4, 4)]


def test_elements_that_contain_themselves_are_elements_like_others() -> None:
    def knot(x: int) -> list[Any]:
        element: list[Any] = [x]
        element.append(element)
        return element

    for ds in (R(50).to_iter_dataset().map(knot), R(50).map(knot).to_iter_dataset()):
        assert [element[0] for element in ds] == list(range(50))
