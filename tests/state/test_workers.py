"""Sharing a position out to workers, and joining theirs, agree with each other and with reading."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import wholegrain as wg
from wholegrain._state import workers
from wholegrain.experimental import multithread_prefetch

_COUNTS = st.integers(0, 1000)


def _nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"parent": children, "index_for_rng": _COUNTS})


_STATES = st.recursive(st.fixed_dictionaries({"next_index": _COUNTS}), _nested, max_leaves=3)


@given(state=_STATES, num_workers=st.integers(1, 9))
def test_what_is_split_can_be_joined(state: Any, num_workers: int) -> None:
    assert workers.join(workers.split(state, num_workers)) == state


@given(state=_STATES, before=st.integers(1, 9), after=st.integers(1, 9))
def test_the_number_of_workers_may_change_on_the_way(state: Any, before: int, after: int) -> None:
    joined = workers.join(workers.split(state, before))
    assert workers.split(joined, after) == workers.split(state, after)


@given(count=_COUNTS, num_workers=st.integers(1, 9))
def test_each_element_is_counted_for_the_worker_that_makes_it(count: int, num_workers: int) -> None:
    counts = workers.counts_in_turn(count, num_workers)
    assert counts == [len(range(worker, count, num_workers)) for worker in range(num_workers)]
    assert sum(counts) == count


@given(num_workers=st.integers(1, 4), read=st.integers(0, 7), random=st.booleans())
def test_states_are_those_of_a_pipeline_with_workers(
    num_workers: int, read: int, random: bool
) -> None:
    ds: Any = wg.MapDataset.range(8).to_iter_dataset(wg.ReadOptions(0, 0))
    if random:
        ds = ds.random_map(lambda x, rng: x, seed=1)
    alone = iter(ds)
    with iter(multithread_prefetch(ds, num_workers, 1)) as shared:
        for _ in range(read):
            assert next(shared) == next(alone)
        assert workers.split(alone.get_state(), num_workers) == shared.get_state()
        assert workers.join(shared.get_state()) == alone.get_state()


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"next_index": -1},
        {"next_index": "4"},
        {"next_index": 4, "count": 2},
        {"parent": {"next_index": 4}, "counter": 2},
        {"parent": {"next_index": 4}, "index_for_rng": None},
    ],
)
def test_a_state_that_does_not_count_elements_is_not_split(state: Any) -> None:
    assert workers.split(state, 2) is None


@pytest.mark.parametrize(
    "states",
    [
        [],
        [None],
        [{"next_index": 2}, None],
        [{"next_index": 0}, {"next_index": 1}],
        [{"next_index": 4}, {"next_index": 2}],
        [{"next_index": "1"}, {"next_index": "1"}],
        [{"next_index": 1}, {"parent": {"next_index": 1}, "index_for_rng": 1}],
        [{"count": 1}, {"count": 1}],
    ],
)
def test_workers_that_have_not_read_a_beginning_together_are_not_joined(states: Any) -> None:
    state = {"iterators_in_use_states": states}
    assert workers.join(state) is state


def test_one_worker_ran_the_whole_pipeline() -> None:
    whole = {"parent": {"next_index": 4}, "counter": 2}
    assert workers.join(workers.in_turn([whole], 0)) == whole


def test_numbers_of_numpy_are_numbers() -> None:
    split = workers.split({"next_index": np.int64(5)}, 2)
    assert split is not None
    assert split["iterators_in_use_states"] == [{"next_index": 3}, {"next_index": 2}]
    assert all(type(one["next_index"]) is int for one in split["iterators_in_use_states"])
