"""Pipelines leave the rest alone: other datasets, classes, states, and the end of the program."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import R, X, source


class Parts(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


def _it() -> Any:
    return R(12).to_iter_dataset()


_DATASETS: dict[str, Callable[[], Any]] = {
    "map_with_index": lambda: _it().map_with_index(max),
    "flat map": lambda: X.FlatMapIterDataset(_it().map_with_index(max), Parts()),
    "rebatch": lambda: X.RebatchIterDataset(_it().map_with_index(max).batch(2), 3),
    "windows": lambda: X.WindowShuffleIterDataset(_it().map_with_index(max), window_size=5, seed=1),
    "repeat": lambda: X.RepeatIterDataset(_it().map_with_index(max), 2),
    "cache": lambda: X.CacheIterDataset(_it().map_with_index(max)),
    "zip": lambda: X.ZipIterDataset([_it(), _it()]),
    "mix": lambda: wg.IterDataset.mix([_it(), _it()]),
    "interleave": lambda: X.InterleaveIterDataset([_it().map_with_index(max)] * 3, cycle_length=2),
    "thread": lambda: X.ThreadPrefetchIterDataset(
        _it().map_with_index(max), prefetch_buffer_size=2
    ),
    "worker threads": lambda: X.multithread_prefetch(_it().map_with_index(max), 2, 1),
}


def _spoil(state: Any) -> None:
    """Change everything in a state that can be changed."""
    if isinstance(state, dict):
        for key in list(state):
            _spoil(state[key])
            state[key] = "spoilt"
        state["more"] = 1
    elif isinstance(state, list):
        for item in state:
            _spoil(item)
        state[:] = ["spoilt"] * 3


@pytest.mark.parametrize("name", _DATASETS)
@pytest.mark.parametrize("taken", [0, 3])
def test_a_state_that_was_handed_out_is_the_users(name: str, taken: int) -> None:
    ds = _DATASETS[name]()
    it, other = iter(ds), iter(ds)
    for _ in range(taken):
        next(it)
        next(other)
    _spoil(it.get_state())
    assert it.get_state() == other.get_state()
    assert str(list(it)) == str(list(other))


@pytest.mark.parametrize("name", _DATASETS)
def test_a_state_that_was_passed_in_is_the_users(name: str) -> None:
    ds = _DATASETS[name]()
    it = iter(ds)
    for _ in range(3):
        next(it)
    state = it.get_state()
    expected = str(list(it))
    given = copy.deepcopy(state)
    restored = iter(ds)
    restored.set_state(given)
    _spoil(given)
    assert restored.get_state() == state
    assert str(list(restored)) == expected


def test_building_on_a_dataset_does_not_change_it() -> None:
    base = R(10).shuffle(seed=1)
    before = dict(vars(base))
    base.map(abs).batch(2).to_iter_dataset().map(abs)
    list(base.filter(bool))
    assert dict(vars(base)) == before
    it = R(10).to_iter_dataset()
    before = dict(vars(it))
    X.multithread_prefetch(it.map(abs), 2, 1)
    list(X.multithread_prefetch(it.map(abs), 2, 1))
    assert dict(vars(it)) == before


def test_iterating_does_not_change_a_class() -> None:
    class Numbers(wg.DatasetIterator[int]):
        def __next__(self) -> int:
            return 1

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None: ...

    class NumbersDataset(wg.IterDataset[int]):
        def __iter__(self) -> wg.DatasetIterator[int]:
            return Numbers()

    before = dict(vars(Numbers))
    next(iter(X.LimitIterDataset(NumbersDataset().map(abs), 2)))
    assert dict(vars(Numbers)) == before


def test_read_options_stay_the_users() -> None:
    options = wg.ReadOptions(num_threads=2, prefetch_buffer_size=3)
    list(source([1, 2, 3]).to_iter_dataset(options))
    assert options == wg.ReadOptions(num_threads=2, prefetch_buffer_size=3)


_LEFT_OPEN = """
import itertools, time
import wholegrain as wg
X = wg.experimental

def slow(x):
    time.sleep(0.002)
    return x

ds = wg.MapDataset.range(10**6).map(slow).to_iter_dataset(wg.ReadOptions(4, 8))
datasets = [
    ds,
    X.ThreadPrefetchIterDataset(ds.map(abs), prefetch_buffer_size=2),
    X.InterleaveIterDataset([ds.map(abs)] * 5, cycle_length=2),
    X.multithread_prefetch(ds.map(abs), 2, 2),
]
iterators = [iter(d) for d in datasets]
for it in iterators:
    it.start_prefetch()
    list(itertools.islice(it, 5))

class Holder:
    def __del__(self):
        for it in self.iterators:
            it.close()

holder = Holder()
holder.iterators = [iter(d) for d in datasets]
for it in holder.iterators:
    next(it)
print("done")
"""


def test_a_program_ends_quietly_with_iterators_open() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", _LEFT_OPEN],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("done\n", "", 0)
