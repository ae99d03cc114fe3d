"""`ds.find`: at which positions a record comes, the inverse of `it.provenance`."""

import collections
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.traced_pipelines import indexable, places_of, source
from wholegrain._core.mixture import Mixture
from wholegrain._core.permute import shuffle_index, unshuffle_index

X: Any = wg.experimental
_STARTS = {"a": 1, "b": 1001, "c": 2001}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_find_is_the_inverse_of_provenance(seed: int) -> None:
    choose = random.Random(seed)
    ds, elements = _with_elements(choose, indexable(choose))
    positions: dict[int, set[int]] = collections.defaultdict(set)
    for position, element in elements:
        for record, _, _ in places_of(element):
            positions[record].add(position)
    names = {name for name in _STARTS if f"{name}: source" in repr(ds)}
    for name in names:
        for index in choose.sample(range(3), 2):
            try:
                found = ds.find(index, name)
            except ValueError as error:
                if "several" in str(error) or "no source" in str(error):
                    raise
                found = ds.find(index, name, stop=1000)
            except IndexError:
                continue
            if _is_unique(ds, name):
                assert found == sorted(positions[_STARTS[name] + index])


def _is_unique(ds: Any, name: str) -> bool:
    return f"{name}: source" in repr(ds) and repr(ds).count(f"{name}: source") == 1


def _with_elements(choose: random.Random, ds: Any) -> tuple[Any, list[tuple[int, Any]]]:
    if not ds.sparse and choose.random() < 0.4:
        ds = ds.batch(3, drop_remainder=choose.random() < 0.5)
    if choose.random() < 0.5:
        return ds, [(n, ds[n]) for n in range(len(ds)) if ds[n] is not None]
    ds = ds.to_iter_dataset()
    if choose.random() < 0.5:
        ds = X.LimitIterDataset(ds, 1 + choose.randrange(9)).map(lambda x: x)
    if choose.random() < 0.3:
        ds = ds.batch(2, batch_fn=tuple)
    if choose.random() < 0.4:
        ds = ds.mp_prefetch(wg.MultiprocessingOptions(0, lanes=2))
    return ds, list(enumerate(ds))


@given(length=st.integers(1, 2**50), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_a_shuffle_is_undone(length: int, seed: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, length - 1))
    assert unshuffle_index(shuffle_index(index, length, seed), length, seed) == index


@pytest.mark.parametrize("weights", [[1, 2], [3, 1, 1], [70_001, 3], [100, 65_537, 7]])
def test_a_mixture_is_undone(weights: list[int]) -> None:
    mixture, indices = Mixture(weights), np.arange(4000)
    components, keys = mixture.locate_many(indices)
    for component in range(len(weights)):
        here = components == component
        found = mixture.positions_of(component, keys[here], 4000)
        assert found.tolist() == indices[here].tolist()
        assert mixture.reach(component, 4000) > keys[here].max(initial=-1)


def test_a_long_dataset_is_not_read() -> None:
    class Endless:
        def __len__(self) -> int:
            return 10**12

        def __getitem__(self, index: int) -> int:
            raise AssertionError("read")

    shuffled = wg.MapDataset.source(Endless()).shuffle(seed=5)
    (found,) = shuffled.find(123_456_789)
    assert shuffled.source_index(found) == 123_456_789
    batches = shuffled.batch(32).to_iter_dataset().batch(2)
    assert batches.find(123_456_789) == [found // 64]


def test_a_record_that_is_filtered_out_is_not_found() -> None:
    ds = source("a", 10).filter(lambda x: x % 2 == 0)
    assert ds.find(1) == [1]
    assert ds.find(2) == []


def test_the_source_has_to_be_named_if_there_are_several() -> None:
    ds = wg.MapDataset.mix([source("a", 4), source("b", 4)])
    with pytest.raises(ValueError, match=r"several sources: \['a', 'b'\]"):
        ds.find(0)
    with pytest.raises(ValueError, match="no source 'x'"):
        ds.find(0, "x")
    with pytest.raises(IndexError, match="no record 4 in 'b'"):
        ds.find(4, "b")
    assert ds.find(1, "b") == [3]


def test_an_infinite_dataset_needs_a_stop() -> None:
    ds = source("a", 3).repeat()
    with pytest.raises(ValueError, match="infinite"):
        ds.find(1)
    with pytest.raises(ValueError, match="infinite"):
        ds.to_iter_dataset().find(1)
    assert ds.find(1, stop=8) == ds.to_iter_dataset().find(1, stop=8) == [1, 4, 7]


def test_a_search_says_that_it_reads() -> None:
    ds = source("a", 10).to_iter_dataset().filter(lambda x: x > 3)
    with pytest.raises(ValueError, match="has to read the elements"):
        ds.find(5)
    assert ds.find(5, stop=100) == [2]
    assert ds.find(0, stop=100) == []
