"""A run takes chunks of elements: what is seen of it is as if it took one at a time."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R

_MOST_AHEAD = 128


def _in_order() -> Any:
    return R(1000).to_iter_dataset(wg.ReadOptions(num_threads=0))


class _Calls:
    """A function that notes its arguments."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, x: int) -> int:
        self.seen.append(x)
        return x


_PIPELINES: dict[str, Callable[[], Any]] = {
    "range": _in_order,
    "map": lambda: _in_order().map(lambda x: x + 1),
    "filter": lambda: _in_order().filter(lambda x: x % 5 in (0, 1)),
    "filter, map": lambda: _in_order().filter(lambda x: x % 7 < 3).map(lambda x: 2 * x),
    "random map": lambda: _in_order().random_map(lambda x, rng: x + rng.integers(9), seed=1),
    "limit": lambda: wg.experimental.LimitIterDataset(_in_order(), 777),
    "windows": lambda: wg.experimental.WindowShuffleIterDataset(
        _in_order(), window_size=30, seed=2
    ),
}


@pytest.mark.parametrize("name", _PIPELINES)
def test_states_are_those_of_the_consumer_wherever_it_stands(name: str) -> None:
    ds = _PIPELINES[name]()
    it = iter(ds)
    elements, states = [], []
    for element in it:
        elements.append(element)
        if len(elements) % 13 == 0:
            states.append((len(elements), it.get_state()))
    every = iter(ds)
    assert [(next(every), every.get_state())[0] for _ in elements] == elements
    other = iter(ds)
    for count, state in states:
        other.set_state(state)
        assert other.get_state() == state
        assert [next(other) for _ in elements[count : count + 20]] == elements[count : count + 20]


def test_no_function_is_called_twice_where_states_are_taken() -> None:
    calls, kept = _Calls(), _Calls()
    it = iter(_in_order().filter(lambda x: kept(x) % 3 != 0).map(calls))
    found = []
    for element in it:
        found.append(element)
        it.get_state()
    assert found == [x for x in range(1000) if x % 3]
    assert calls.seen == found
    assert kept.seen == list(range(1000))


def test_functions_run_ahead_by_a_chunk_at_most() -> None:
    calls = _Calls()
    it = iter(_in_order().map(calls))
    next(it)
    assert len(calls.seen) == 1
    for given in range(2, 900):
        next(it)
        assert given <= len(calls.seen) <= given + _MOST_AHEAD


def test_nobody_waits_for_slow_elements_that_are_not_needed_yet() -> None:
    calls = _Calls()

    def slow(x: int) -> int:
        time.sleep(0.002)
        return calls(x)

    it = iter(_in_order().map(slow))
    for given in range(1, 9):
        next(it)
        assert len(calls.seen) == given


def test_few_large_elements_are_made_ahead() -> None:
    made = 0

    def large(x: int) -> Any:
        nonlocal made
        made += 1
        return np.empty(1 << 17, np.uint8)

    it = iter(_in_order().map(large))
    for given in range(1, 100):
        next(it)
        assert made <= given + 1


def test_an_error_is_raised_at_its_place_and_the_rest_follows() -> None:
    def fails(x: int) -> int:
        if x == 500:
            raise ValueError("500")
        return x

    it = iter(_in_order().map(fails))
    found = [next(it) for _ in range(500)]
    state = it.get_state()
    with pytest.raises(ValueError, match="500"):
        next(it)
    found += list(it)
    assert found == [x for x in range(1000) if x != 500]
    it.set_state(state)
    with pytest.raises(ValueError, match="500"):
        next(it)


def test_a_state_that_is_refused_leaves_the_run_where_it_is() -> None:
    it = iter(_in_order().map(lambda x: x))
    for _ in range(300):
        next(it)
    with pytest.raises(ValueError, match="5000"):
        it.set_state({"next_index": 5000})
    assert it.get_state() == {"next_index": 300}
    assert list(it) == list(range(300, 1000))


def test_a_closed_run_keeps_its_state_and_gives_nothing() -> None:
    it = iter(_in_order().map(lambda x: x))
    for _ in range(300):
        next(it)
    it.close()
    assert it.get_state() == {"next_index": 300}
    with pytest.raises(ValueError, match="closed"):
        next(it)


def test_a_refused_state_runs_no_function_again() -> None:
    seen: list[int] = []

    def remember(element: int) -> int:
        seen.append(element)
        return element

    it = iter(wg.MapDataset.range(500).to_iter_dataset().map(remember))
    got = []
    for _ in range(100):
        got.append(next(it))
        with pytest.raises(ValueError, match="state"):
            it.set_state({"no": "state"})
    assert [*got, *it] == list(range(500))
    assert seen == list(range(500))


_HOLDING: dict[str, Callable[[Any], Any]] = {
    "window": lambda ds: wg.experimental.WindowShuffleIterDataset(ds, window_size=30, seed=2),
    "rebatch": lambda ds: wg.experimental.RebatchIterDataset(ds.batch(7), 3),
    "flat map": lambda ds: wg.experimental.FlatMapIterDataset(ds, _Thrice()),
}
_FIELDS = {"window": "pos_in_window", "rebatch": "batch_idx", "flat map": "next_index_in_buffer"}


class _Thrice(wg.experimental.FlatMapTransform):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element] * 3


@pytest.mark.parametrize("name", _HOLDING)
def test_a_state_that_cannot_be_reached_runs_no_function_again(name: str) -> None:
    before, after = _Calls(), _Calls()
    ds = _HOLDING[name](_in_order().map(before)).map(after)
    want = [np.asarray(element).tolist() for element in ds]
    called = [list(calls.seen) for calls in (before, after)]
    wrong = _unreachable(ds, name)
    before.seen, after.seen = [], []
    it = iter(ds)
    got = [next(it) for _ in range(100)]
    read = len(before.seen)
    with pytest.raises(ValueError, match="were read"):
        it.set_state(wrong)
    reading, before.seen = before.seen[read:], before.seen[:read]
    assert all(x >= 900 for x in reading), "Only what the state leads to may be read."
    got += it
    assert [np.asarray(element).tolist() for element in got] == want
    assert [before.seen, [np.asarray(x).tolist() for x in after.seen]] == [
        called[0],
        [np.asarray(x).tolist() for x in called[1]],
    ]


def _unreachable(ds: Any, name: str) -> Any:
    """Return a late state that is further in a window, a batch or an element than it has parts."""
    it = iter(ds)
    states = [it.get_state() for _ in it]
    return {**[state for state in states if state[_FIELDS[name]]][-5], _FIELDS[name]: 20}


def test_restoring_asks_each_stage_a_fixed_number_of_times() -> None:
    def calls(num_stages: int) -> int:
        ds = _in_order()
        for _ in range(num_stages):
            ds = wg.experimental.LimitIterDataset(ds.map(lambda x: x), 900)
        it = iter(ds)
        next(it)
        state = it.get_state()
        count = 0

        def note(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            it.set_state(state)
        finally:
            sys.setprofile(None)
        return count

    few, more, many = calls(10), calls(20), calls(40)
    assert many - more == pytest.approx(2 * (more - few), rel=0.1)
