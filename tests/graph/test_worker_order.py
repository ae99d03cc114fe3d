"""Workers that fail, die or are interrupted change neither the order nor what is saved."""

import contextlib
import copy
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import END, R, X, eventually, finishes, our_threads
from tests.workers.processes import descendants, is_running, wait_until_gone

_WORKERS = [1, 2, 3]


def _prefetch(ds: Any, workers: Any) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers)) if workers else ds


def _pids() -> set[int]:
    """Return the processes of workers, and of the one that starts them."""
    return {pid for pid in descendants(os.getpid()) if is_running(pid)}


def _file(number: int) -> Any:
    return R(10 * number, 10 * number + 5).to_iter_dataset()


# States.


@pytest.mark.parametrize("files", [1, 2, 3, 5])
@pytest.mark.parametrize("workers", _WORKERS)
def test_files_dealt_out_unevenly_resume_at_every_element(files: int, workers: int) -> None:
    if workers > files:
        pytest.skip("A worker without a file has no interleave.")
    ds = _prefetch(X.InterleaveIterDataset(R(files).map(_file), cycle_length=2), workers)
    it = iter(ds)
    states = [it.get_state()]
    elements = []
    for element in it:
        elements.append(element)
        states.append(it.get_state())
    assert sorted(elements) == sorted(10 * file + n for file in range(files) for n in range(5))
    for step in reversed(range(len(states))):
        it.set_state(states[step])
        assert it.get_state() == states[step]
        assert list(it) == elements[step:]
    fresh = iter(ds)
    fresh.set_state(states[3])
    assert list(fresh) == elements[3:]
    it.close()
    fresh.close()


class Versioned(wg.DatasetIterator[int]):
    """Refuses a state only when it is to go there."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    def __next__(self) -> int:
        if self._position >= 100:
            raise StopIteration
        self._position += 1
        return self._position - 1

    def get_state(self) -> dict[str, Any]:
        return {"position": self._position, "version": 2}

    def set_state(self, state: dict[str, Any]) -> None:
        if state["version"] != 2:
            raise ValueError("an old state")
        self._position = state["position"]


class VersionedDataset(wg.IterDataset[int]):
    def __iter__(self) -> wg.DatasetIterator[int]:
        return Versioned()

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        pass


@pytest.mark.parametrize("asked_between", [False, True])
def test_a_good_state_can_follow_one_that_a_worker_refuses(asked_between: bool) -> None:
    def run() -> None:
        it = iter(_prefetch(VersionedDataset(), 1))
        assert next(it) == 0
        good = it.get_state()
        bad = copy.deepcopy(good)
        bad["iterators_in_use_states"][0] = {"position": 5, "version": 1}
        for _ in range(3):
            it.set_state(bad)
            if asked_between:
                with pytest.raises(ValueError, match="an old state"):
                    next(it)
            it.set_state(good)
            assert [next(it) for _ in range(3)] == [1, 2, 3]
        it.close()

    finishes(run)


def test_a_good_state_can_follow_one_of_longer_files() -> None:
    def pipeline(length: int) -> Any:
        files = R(4).map(lambda n: R(1000 * n, 1000 * n + length).to_iter_dataset())
        return _prefetch(X.InterleaveIterDataset(files, cycle_length=2), 2)

    def run() -> None:
        longer = iter(pipeline(200))
        for _ in range(40):
            next(longer)
        older = longer.get_state()
        for _ in range(560):
            next(longer)
        newer = longer.get_state()
        longer.close()
        it = iter(pipeline(100))
        first = next(it)
        assert first == 0
        for _ in range(3):
            with pytest.raises(IndexError, match="the dataset has 100"):  # noqa: PT012 Either.
                it.set_state(newer)
                next(it)
        it.set_state(older)
        assert [next(it) for _ in range(4)] == [10, 1010, 2010, 3010]
        it.close()

    finishes(run)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_state_of_an_unused_iterator_is_the_beginning_for_one_in_use(workers: int) -> None:
    ds = _prefetch(R(20).to_iter_dataset(), workers)
    unused = iter(ds)
    unused.close()
    it = iter(ds)
    for taken in (3, 20):
        for _ in range(taken):
            next(it)
        it.set_state(unused.get_state())
        assert [next(it) for _ in range(4)] == [0, 1, 2, 3]
        it.set_state(unused.get_state())
    it.close()


def test_restoring_with_more_workers_than_elements() -> None:
    for length in range(4):
        want = list(range(length))
        for position in range(length + 1):
            for workers in (0, 1, 3, 5):
                it = iter(_prefetch(R(length).to_iter_dataset(), workers))
                it.set_state({"next_index": position} if workers != 1 else _of_one(position))
                assert list(it) == want[position:]
                assert next(it, END) == END
                state = it.get_state()
                it.set_state(state)
                assert next(it, END) == END
                it.close()


def _of_one(position: int) -> Any:
    it = iter(_prefetch(R(9).to_iter_dataset(), 1))
    state = it.get_state()
    state["iterators_in_use_states"] = [{"next_index": position}]
    it.close()
    return state


def test_a_state_in_which_workers_did_not_take_turns_needs_their_number() -> None:
    it = iter(_prefetch(R(40).to_iter_dataset(), 2))
    for _ in range(6):
        next(it)
    state = it.get_state()
    state["iterators_in_use_states"] = [{"next_index": 2}, {"next_index": 4}]
    it.set_state(state)
    assert [next(it) for _ in range(4)] == [4, 9, 6, 11]
    for workers in (0, 3, "auto"):
        other = iter(_prefetch(R(40).to_iter_dataset(), workers))
        with pytest.raises(ValueError, match="number"):
            other.set_state(state)
        other.close()
    it.close()


# What is open stays open.


@pytest.mark.parametrize("inner", [1, 2])
def test_restoring_an_interleave_keeps_the_workers_of_its_datasets(inner: int) -> None:
    datasets = [_prefetch(R(10 * n, 10 * n + 6).to_iter_dataset(), inner) for n in range(3)]
    ds = X.InterleaveIterDataset(datasets, cycle_length=2)
    elements = [0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15, 20, 21, 22, 23, 24, 25]
    it: Any = iter(ds)
    next(it)
    others = _pids()
    it.close()
    gc.collect()
    it = iter(ds)
    states = []
    for _ in range(8):
        states.append(it.get_state())
        next(it)
    pids = _pids() - others
    assert len(pids) == 2 * inner
    for step in (1, 5, 0, 7):
        it.set_state(states[step])
        assert [next(it) for _ in range(2)] == elements[step : step + 2]
        assert _pids() - others == pids
    it.set_state(states[3])
    assert list(it) == elements[3:]
    it.close()
    wait_until_gone(pids)


class Noting(wg.IterDataset[int]):
    """Numbers; notes when its iterators are opened and closed."""

    def __init__(self, number: int, notes: list[str]) -> None:
        super().__init__()
        self._number, self._notes = number, notes

    def __iter__(self) -> wg.DatasetIterator[int]:
        self._notes.append(f"open {self._number}")
        it: Any = iter(R(10 * self._number, 10 * self._number + 4).to_iter_dataset())
        close = it.close

        def closing() -> None:
            self._notes.append(f"close {self._number}")
            close()

        it.close = closing
        return it  # type: ignore[no-any-return]


@pytest.mark.parametrize("started", [False, True])
def test_restoring_an_interleave_opens_what_is_missing_and_closes_the_rest(started: bool) -> None:
    notes: list[str] = []
    ds = X.InterleaveIterDataset([Noting(n, notes) for n in range(4)], cycle_length=2)
    elements = list(ds)
    it = iter(ds)
    if started:
        it.start_prefetch()
    states = []
    for _ in range(len(elements)):
        states.append(it.get_state())
        next(it)
    it.set_state(states[10])  # Datasets 2 and 3.
    notes.clear()
    it.set_state(states[12])
    assert notes == []
    assert next(it) == elements[12]
    it.set_state(states[2])  # Datasets 0 and 1.
    assert sorted(set(notes)) == ["close 2", "close 3", "open 0", "open 1"]
    assert [next(it) for _ in range(14)] == elements[2:]
    it.close()
    gc.collect()
    assert eventually(lambda: not our_threads())


def test_a_refused_state_leaves_an_interleave_where_it_was() -> None:
    ds = X.InterleaveIterDataset([VersionedDataset() for _ in range(3)], cycle_length=2)
    it = iter(ds)
    assert [next(it) for _ in range(5)] == [0, 0, 1, 1, 2]
    state = it.get_state()
    bad = copy.deepcopy(state)
    bad["iterators_in_use_states"][1]["version"] = 1
    with pytest.raises(ValueError, match="an old state"):
        it.set_state(bad)
    assert it.get_state() == state
    assert [next(it) for _ in range(5)] == [2, 3, 3, 4, 4]


# Deaths, and starts that fail.


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _deadly(folder: Path, at: int) -> Callable[[int], int]:
    """Return a function that ends its process at an element, as long as there is a file."""
    (folder / "deadly").touch()

    def function(element: int) -> int:
        if element == at and (folder / "deadly").exists():
            os._exit(7)
        return element

    return function


@pytest.mark.parametrize("at", [0, 3, 7])
@pytest.mark.parametrize("workers", [1, 2, 3, "auto"])
def test_a_worker_that_dies_twice_at_an_element_changes_no_order(
    workers: Any, at: int, tmp_path: Path, quiet: None
) -> None:
    def run() -> None:
        ds = R(20).map(_deadly(tmp_path, at)).to_iter_dataset(wg.ReadOptions(0, 0))
        it = iter(_prefetch(ds, workers))
        elements = [next(it) for _ in range(at)]
        assert elements == list(range(at))
        with pytest.raises(RuntimeError, match="terminated unexpectedly"):
            next(it)
        (tmp_path / "deadly").unlink()
        state = it.get_state()
        elements += it
        assert elements == list(range(20))
        it.close()
        for other in (0, 2, 3, "auto"):
            restored = iter(_prefetch(ds, other))
            restored.set_state(state)
            assert list(restored) == elements[at:]
            restored.close()

    finishes(run)


@pytest.mark.parametrize("workers", [2, "auto"])
def test_a_worker_that_cannot_be_set_up_changes_no_order(workers: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken"

    def set_up(index: int, count: int) -> None:
        if broken.exists():
            raise OSError("no such device")

    options = wg.MultiprocessingOptions(num_workers=workers)
    it: Any = iter(R(20).to_iter_dataset().mp_prefetch(options, set_up))
    broken.touch()
    for _ in range(3):
        with pytest.raises(OSError, match="no such device"):
            next(it)
    broken.unlink()
    elements: list[int] = []
    while len(elements) < 20:
        # The others have failed as well, and say so when it is their turn.
        with contextlib.suppress(OSError):
            elements += [finishes(it.__next__)]
    assert elements == list(range(20))
    it.close()


class TimeOut(BaseException):
    pass


@pytest.mark.parametrize("workers", [1, 3, "auto"])
def test_an_interrupted_wait_for_a_worker_changes_no_order(workers: Any, tmp_path: Path) -> None:
    (tmp_path / "slow").touch()

    def slow(element: int) -> int:
        while (tmp_path / "slow").exists():
            time.sleep(0.01)
        return element

    def on_alarm(*_: Any) -> None:
        raise TimeOut

    ds = R(12).map(slow).to_iter_dataset()
    it = iter(_prefetch(ds, workers))
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(TimeOut):
                next(it)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    (tmp_path / "slow").unlink()
    state = it.get_state()
    assert finishes(lambda: list(it)) == list(range(12))
    it.close()
    for other in (0, 2):
        restored = iter(_prefetch(ds, other))
        restored.set_state(state)
        assert list(restored) == list(range(12))


# Closing in another thread.


def _vector(number: int) -> Any:
    return np.full(3000, number)


@pytest.mark.parametrize(
    "kind", ["1 worker", "2 workers", "auto", "threads", "interleave", "small elements"]
)
def test_closing_in_another_thread_gives_elements_in_order_or_says_so(kind: str) -> None:
    ds = R(2000).map(_vector).to_iter_dataset()
    if kind == "threads":
        ds = X.multithread_prefetch(ds, 2, 2)
    elif kind == "interleave":
        ds = X.InterleaveIterDataset([_prefetch(ds, 1)], cycle_length=1)
    elif kind == "small elements":
        ds = _prefetch(R(100_000).to_iter_dataset(), 2)
    else:
        ds = _prefetch(ds, kind if kind == "auto" else int(kind[0]))

    def round_of(wait_s: float) -> None:
        it = iter(ds)
        found: list[int] = []
        told: list[BaseException] = []
        begun = threading.Event()

        def iterate() -> None:
            try:
                for element in it:
                    assert kind == "small elements" or (element == element[0]).all()
                    found.append(int(element if kind == "small elements" else element[0]))
                    begun.set()
            except BaseException as error:
                told.append(error)
            begun.set()

        thread = threading.Thread(target=iterate, daemon=True)
        thread.start()
        if wait_s >= 0:
            begun.wait()
            time.sleep(wait_s)
        it.close()
        thread.join(30)
        assert not thread.is_alive()
        assert found == list(range(len(found)))
        for error in told:
            assert isinstance(error, ValueError), error
            assert "closed iterator" in str(error)

    for number in range(12):
        round_of(number * 0.002 - 0.004)
    gc.collect()
    assert eventually(lambda: not our_threads())


# Functions run once for each element.


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("workers", [1, 2, 3, "auto"])
def test_functions_run_once_for_each_element_also_where_some_fail(
    workers: Any, threads: int, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"

    def noted(element: int) -> int:
        with calls.open("a") as file:
            file.write(f"{element}\n")
        time.sleep(0.002 * (element % 5))
        if element % 7 == 3:
            raise OSError(f"element {element}")
        return element

    read = wg.ReadOptions(threads, 16 if threads else 0)
    it: Any = iter(_prefetch(R(60).map(noted).to_iter_dataset(read), workers))
    if workers == "auto":
        it.set_worker_count(3)
    found: list[Any] = []
    while len(found) < 60:
        try:
            found.append(next(it))
        except OSError as error:
            found.append(str(error))
    assert next(it, END) == END
    it.close()
    assert found == [f"element {n}" if n % 7 == 3 else n for n in range(60)]
    assert sorted(map(int, calls.read_text().split())) == list(range(60))
