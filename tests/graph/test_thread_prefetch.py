"""ThreadPrefetch: a thread runs the pipeline ahead."""

import gc
import random
import threading
import time
from typing import Any

import pytest

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
    source,
)
from wholegrain.testing import check_iter_dataset


def _prefetch(ds: Any, size: int) -> Any:
    return X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=size)


def _remembering(length: int = 100) -> tuple[list[int], Any]:
    seen: list[int] = []

    def remember(element: int) -> int:
        seen.append(element)
        return element

    return seen, R(length).to_iter_dataset().map(remember)


@pytest.mark.parametrize("size", [0, 1, 2, 50])
def test_the_same_elements_in_the_same_order(size: int) -> None:
    assert finishes(lambda: list(_prefetch(R(40).to_iter_dataset(), size))) == list(range(40))
    nones = source([1, None, 3]).to_iter_dataset(allow_nones=True)
    assert list(_prefetch(nones, size)) == [1, None, 3]
    assert list(_prefetch(R(4), size)) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [1, 3])
def test_it_runs_no_further_ahead_than_the_buffer(size: int) -> None:
    seen, ds = _remembering()
    it = iter(_prefetch(ds, size))
    it.start_prefetch()
    it.start_prefetch()
    assert eventually(lambda: len(seen) >= size)
    time.sleep(0.02)
    assert len(seen) <= size + 1
    for taken in range(1, 20):
        next(it)
        assert len(seen) <= taken + size + 1
    it.close()


def test_the_work_is_done_by_another_thread() -> None:
    names = set()

    def remember(element: int) -> int:
        names.add(threading.current_thread().name)
        return element

    ds = R(10).to_iter_dataset().map(remember)
    list(_prefetch(ds, 2))
    assert len(names) == 1
    assert threading.current_thread().name not in names
    names.clear()
    list(_prefetch(ds, 0))
    assert names == {threading.current_thread().name}


def test_nothing_runs_before_the_first_element() -> None:
    seen, ds = _remembering()
    it = iter(_prefetch(ds, 5))
    it.get_state()
    it.set_state(it.get_state())
    time.sleep(0.02)
    assert seen == []
    assert our_threads() == []


def test_without_a_buffer_start_prefetch_does_nothing() -> None:
    seen, ds = _remembering()
    it = iter(_prefetch(ds, 0))
    it.start_prefetch()
    time.sleep(0.02)
    assert seen == []
    assert our_threads() == []
    assert next(it) == 0


def test_the_state_is_that_of_what_was_handed_out() -> None:
    _, ds = _remembering()
    it = iter(_prefetch(ds, 10))
    it.start_prefetch()
    assert it.get_state() == {"next_index": 0}
    for taken in range(1, 30):
        next(it)
        assert it.get_state() == {"next_index": taken}
    it.close()


def test_set_state_while_it_runs_ahead() -> None:
    it = iter(_prefetch(R(100).to_iter_dataset(), 10))

    def run() -> None:
        for start in (50, 3, 99, 100, 0):
            it.set_state({"next_index": start})
            assert it.get_state() == {"next_index": start}
            assert next(it, END) == (start if start < 100 else END)

    finishes(run)
    it.close()


def test_states_are_copies() -> None:
    ds = _prefetch(R(9).to_iter_dataset().map_with_index(max), 3)
    it = iter(ds)
    next(it)
    state = it.get_state()
    state["parent"]["next_index"] = 7
    state["counter"] = 7
    assert it.get_state() == {"parent": {"next_index": 1}, "counter": 1}
    it.close()


def test_it_goes_on_after_an_error_and_ends_once() -> None:
    ds = R(6).to_iter_dataset().map(fails_on(2, 5))
    for size in (0, 1, 10):
        it = iter(_prefetch(ds, size))
        expected = [0, 1, "element 2", 3, 4, "element 5", END]
        assert finishes(lambda it=it: outcomes(it)) == expected  # type: ignore[misc]
        assert [next(it, END) for _ in range(3)] == [END] * 3


@pytest.mark.parametrize("size", [-1, -10])
def test_a_negative_buffer_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=str(size)) as raised:
        _prefetch(R(3), size)
    assert "0 switches it off" in str(raised.value)
    with pytest.raises(ValueError, match=str(size)):
        X.ThreadPrefetchDatasetIterator(iter(R(3)), size)


def test_prefetches_can_be_stacked() -> None:
    ds = R(50).to_iter_dataset()
    for size in (1, 3, 0, 2):
        ds = _prefetch(ds.map(abs), size)
    assert finishes(lambda: list(ds)) == list(range(50))
    check_iter_dataset(_prefetch(_prefetch(R(6).to_iter_dataset(), 2), 2))


# Quick elements need no thread.


def _names_of_threads() -> tuple[list[str], Any]:
    names: list[str] = []

    def remember(element: int) -> int:
        names.append(threading.current_thread().name)
        return element

    return names, remember


def test_quick_elements_are_made_without_a_thread() -> None:
    names, remember = _names_of_threads()
    it = iter(_prefetch(source(range(5000)).to_iter_dataset().map(remember), 4))
    for taken in range(1, 5001):
        assert next(it) == taken - 1
        assert it.get_state() == {"next_index": taken}
    assert names[-1] == threading.current_thread().name
    assert next(it, END) is END
    assert eventually(lambda: not our_threads())


def test_when_they_turn_slow_a_thread_makes_them_again() -> None:
    names, remember = _names_of_threads()

    def slow_later(element: int) -> Any:
        if element >= 1000:
            time.sleep(0.001)
        return remember(element)

    it = iter(_prefetch(source(range(1300)).to_iter_dataset().map(slow_later), 4))
    assert finishes(lambda: list(it)) == list(range(1300))
    assert not all("ahead" in name for name in names[:1000])
    assert any("ahead" in name for name in names[1000:])


@pytest.mark.parametrize("size", [0, 1, 16])
def test_what_is_taken_is_what_next_gives_with_and_without_a_thread(size: int) -> None:
    """Also across errors, the end, and where the thread ends because elements are quick."""
    ds = _prefetch(R(400).to_iter_dataset().map(fails_on(3, 90, 399)).filter(lambda x: x % 5), size)
    one_by_one, expected = iter(ds), []
    while (outcome := outcomes(one_by_one, 1)) != [END]:
        expected.append((outcome[0], one_by_one.get_state()))
    it = iter(ds)
    found = []
    counts = random.Random(size)
    while True:
        before = it.get_state()
        try:
            taken = it.take(counts.randint(1, 9))
        except Unreadable as error:
            found.append(str(error))
            assert it.get_state() == expected[len(found) - 1][1]
            continue
        if not taken:
            assert it.get_state() == before
            break
        found += taken
        assert it.get_state()["next_index"] >= expected[len(found) - 1][1]["next_index"]
    assert found == [outcome for outcome, _ in expected]
    it.close()


# Where the thread ends.


def test_closing_dropping_and_ending_end_the_thread() -> None:
    gc.disable()
    try:
        ds = _prefetch(source(range(10**6)).to_iter_dataset().map(abs), 3)
        it = iter(ds)
        next(it)
        assert our_threads()
        it.close()
        it.close()
        assert eventually(lambda: not our_threads())
        with pytest.raises(ValueError, match="closed"):
            next(it)
        with pytest.raises(ValueError, match="closed"):
            it.start_prefetch()
        assert it.get_state() == {"next_index": 1}

        it = iter(ds)
        next(it)
        assert our_threads()
        del it
        assert eventually(lambda: not our_threads())

        list(_prefetch(R(10), 2))
        assert eventually(lambda: not our_threads())
    finally:
        gc.enable()


def test_dropping_it_does_not_wait_for_the_thread() -> None:
    release = threading.Event()
    waiting = threading.Event()

    def wait(element: int) -> int:
        if element == 1:
            waiting.set()
            release.wait(30)
        return element

    it = iter(_prefetch(R(5).to_iter_dataset().map(wait), 5))
    next(it)
    assert waiting.wait(30)
    del it  # Would hang otherwise.
    assert not release.is_set()
    release.set()
    assert eventually(lambda: not our_threads())


# Iterators of others.


class Countdown:
    """Not one of ours, but it has what is needed."""

    def __init__(self, start: int) -> None:
        self._left = start

    def __iter__(self) -> "Countdown":
        return self

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._left

    def get_state(self) -> dict[str, int]:
        return {"left": self._left}

    def set_state(self, state: dict[str, int]) -> None:
        self._left = state["left"]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_foreign_iterator_can_be_run_ahead(size: int) -> None:
    it = X.ThreadPrefetchDatasetIterator(Countdown(5), size)
    assert [next(it), next(it)] == [4, 3]
    assert it.get_state() == {"left": 3}
    assert list(it) == [2, 1, 0]
    it.set_state({"left": 2})
    assert list(it) == [1, 0]
    it.set_state({"left": 2})
    with pytest.raises(ValueError, match="Countdown"):
        X.get_next_index(it)
    with pytest.raises(ValueError, match="Countdown"):
        X.set_next_index(it, 1)
    it.close()


def test_it_resumes() -> None:
    for size in (0, 1, 4):
        check_iter_dataset(_prefetch(R(9).to_iter_dataset(), size))
        check_iter_dataset(_prefetch(R(9).to_iter_dataset().batch(2), size).map(abs))
        check_iter_dataset(_prefetch(R(9).to_iter_dataset().filter(lambda x: x % 2), size))
    windows = X.WindowShuffleIterDataset(R(9).to_iter_dataset(), window_size=4, seed=1)
    check_iter_dataset(_prefetch(windows, 3))
