"""States that follow from a number of elements are those of an iterator that read as many."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import wholegrain as wg
from wholegrain._state.counting import CountedStates
from wholegrain.experimental import LimitIterDataset


@st.composite
def _pipelines(draw: st.DrawFn) -> Any:
    numbers = wg.MapDataset.range(draw(st.integers(0, 40))).seed(1)
    ds: Any = numbers.to_iter_dataset(wg.ReadOptions(0, 0))
    kinds = ["batch", "full batches", "limit", "map", "random_map", "map_with_index"]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        number = draw(st.integers(1, 5))
        if kind == "map":
            ds = ds.map(lambda x: x)
        elif kind == "random_map":
            ds = ds.random_map(lambda x, rng: x)
        elif kind == "map_with_index":
            ds = ds.map_with_index(lambda index, x: x)
        elif kind == "limit":
            ds = LimitIterDataset(ds, 2 * number)
        else:
            ds = ds.batch(number, drop_remainder=kind == "full batches", batch_fn=list)
    return ds


@given(ds=_pipelines(), data=st.data())
def test_states_by_arithmetic_are_those_of_iterators(ds: Any, data: st.DataObject) -> None:
    counted = CountedStates(ds)
    it = iter(ds)
    states = [it.get_state(), *(it.get_state() for _ in it)]
    here = data.draw(st.integers(0, len(states) - 1))
    there = data.draw(st.integers(here, len(states) - 1))
    assert counted.left(states[0]) == len(states) - 1
    if there > here:
        assert counted.after(states[here], there - here) == states[there]
