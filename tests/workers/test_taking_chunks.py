"""Numbers and strings that a worker makes in chunks: same elements, states and errors."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain._workers.maker import Maker
from wholegrain._workers.messages import MAX_AHEAD, MAX_AHEAD_BYTES
from wholegrain._workers.outbox import Ahead

_LENGTH = 3000


def _some_arrays(number: int) -> Any:
    return np.full(3, number) if number % 700 == 650 else number


def _some_fail(number: int) -> int:
    if number % 500 == 333:
        raise ValueError(f"{number} is no good")
    return number


def _some_locks(number: int) -> Any:
    return threading.Lock() if number % 500 == 333 else number


def _stops(number: int) -> int:
    if number == 1234:
        raise StopIteration
    return number


_PIPELINES: dict[str, Callable[[wg.IterDataset[Any]], wg.IterDataset[Any]]] = {
    "numbers": lambda ds: ds,
    "mapped": lambda ds: ds.map(lambda n: n + 1),
    "strings": lambda ds: ds.map(lambda n: "x" * (n % 40)),
    "long strings": lambda ds: ds.map(lambda n: "x" * (5000 * (n % 900 == 800))),
    "filtered": lambda ds: ds.filter(lambda n: n % 7 != 3),
    "mixed kinds": lambda ds: ds.map(lambda n: [n, str(n), n / 2, None][n % 4] or 0),
    "some arrays": lambda ds: ds.map(_some_arrays),
    "some fail": lambda ds: ds.map(_some_fail),
    "stops": lambda ds: ds.map(_stops),
    "limited": lambda ds: wg.experimental.LimitIterDataset(ds, 1111),
    "window": lambda ds: wg.experimental.WindowShuffleIterDataset(ds, window_size=9, seed=1),
}


def _walk(it: Any) -> list[Any]:
    """Return the elements and errors of a run, each with the state after it."""
    found: list[Any] = []
    while True:
        try:
            element = next(it)
            text = repr(element)
        except StopIteration:
            it.close()
            return found
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        found.append((text, it.get_state()))


def _states(found: list[Any]) -> list[Any]:
    return [
        (text, state["iterators_in_use_states"][0] if "exhausted" in state else state)
        for text, state in found
    ]


@pytest.mark.parametrize("name", _PIPELINES)
def test_elements_states_and_errors_are_those_without_a_worker(name: str) -> None:
    ds = _PIPELINES[name](wg.MapDataset.range(_LENGTH).to_iter_dataset())
    remote = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
    assert _states(_walk(iter(remote))) == _walk(iter(ds))


_COUNTABLE = sorted(set(_PIPELINES) - {"filtered", "limited", "window"})


@pytest.mark.parametrize("name", _COUNTABLE)
def test_so_they_are_with_auto_workers(name: str) -> None:
    ds = _PIPELINES[name](wg.MapDataset.range(_LENGTH).to_iter_dataset())
    options = wg.MultiprocessingOptions(num_workers="auto", max_workers=2)
    assert _walk(iter(ds.mp_prefetch(options))) == _walk(iter(ds))


def test_elements_after_one_that_cannot_be_sent_arrive() -> None:
    ds = wg.MapDataset.range(_LENGTH).to_iter_dataset().map(_some_locks)
    found = _walk(iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))))
    assert len(found) == _LENGTH
    for number, (text, state) in enumerate(found):
        assert state["iterators_in_use_states"][0] == {"next_index": number + 1}
        assert "cannot be sent" in text if number % 500 == 333 else text == str(number)


@pytest.mark.parametrize("place", [1, 2, 63, 64, 65, 500, _LENGTH - 1])
def test_a_run_resumes_within_a_chunk(place: int) -> None:
    ds = wg.MapDataset.range(_LENGTH).to_iter_dataset().filter(lambda n: n % 7 != 3)
    remote = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
    expected = list(ds)
    it = iter(remote)
    for element in expected[:place]:
        assert next(it) == element
    state = it.get_state()
    for _ in range(50):
        next(it, None)
    it.set_state(state)
    assert list(it) == expected[place:]
    it.close()


class _Counter:
    """An iterator of a worker, over numbers."""

    takes_chunks = True

    def __init__(self, element: Callable[[int], Any] = int, step: int = 1) -> None:
        self._at = 0
        self._element = element
        self._step = step
        self.asked: list[int] = []

    def __next__(self) -> Any:
        return self.take(1)[0]

    def take(self, count: int) -> list[Any]:
        self.asked.append(count)
        elements = [self._element(self._at + number) for number in range(count)]
        self._at += count
        return elements

    def put_back(self, count: int) -> None:
        self._at -= count

    def pass_over(self, count: int) -> None:
        self._at += count

    def get_state(self) -> Any:
        return {"next_index": self._step * self._at}

    def set_state(self, state: Any) -> None:
        self._at = state["next_index"] // self._step


def _make(maker: Maker, most: int = 1000) -> tuple[list[Any], list[Any]]:
    elements = maker.take(most)
    return elements, list(maker.wire_states(len(elements)))


def test_chunks_grow_while_elements_are_quick() -> None:
    counter = _Counter()
    maker = Maker(counter, np.empty)
    found: list[int] = []
    for _ in range(10):
        elements, states = _make(maker)
        assert states == [element + 1 for element in elements]
        found += elements
    assert found == list(range(len(found)))
    assert counter.asked[0] == 1
    assert max(counter.asked) == 256
    assert len(_make(maker, most=5)[0]) == 5


def test_chunks_stay_small_while_elements_are_slow() -> None:
    def slow(number: int) -> int:
        time.sleep(0.002)
        return number

    counter = _Counter(slow)
    maker = Maker(counter, np.empty)
    for _ in range(10):
        _make(maker)
    assert set(counter.asked) == {1}


def test_elements_that_can_change_are_made_one_by_one() -> None:
    counter = _Counter(lambda number: [number])
    maker = Maker(counter, np.empty)
    assert maker.takes_chunks
    assert _make(maker) == ([[0]], [1])
    assert not maker.takes_chunks
    assert [maker.make() for _ in range(5)] == [[number] for number in range(1, 6)]
    assert maker.wire_state() == 6


def test_a_state_that_moves_by_more_than_one_is_asked_for_each_element() -> None:
    maker = Maker(_Counter(step=3), np.empty)
    for _ in range(10):
        elements, states = _make(maker)
        assert states == [3 * element + 3 for element in elements]
    maker.go_to({"next_index": 30})
    assert _make(maker)[1][0] == 33


def test_a_worker_of_small_elements_stays_within_its_limits() -> None:
    ahead = Ahead(buffer_size=1)
    assert ahead.room == MAX_AHEAD
    ahead.note_made(100, 1600)
    ahead.note_sent(100, 1600)
    assert ahead.room == MAX_AHEAD - 100
    ahead.note_made(1, MAX_AHEAD_BYTES)
    ahead.note_sent(1, MAX_AHEAD_BYTES)
    assert ahead.room < 0
    ahead.note_taken(99)
    assert ahead.room == 1
    ahead.note_taken(101)
    assert ahead.room == MAX_AHEAD
    ahead.note_made(1, 16)
    ahead.start_over()
    assert (ahead.made, ahead.room) == (0, MAX_AHEAD)
