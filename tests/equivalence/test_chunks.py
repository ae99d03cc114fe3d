"""A chunk is what its elements are, one by one: for every node, in any order and company."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.equivalence.graphs import map_datasets
from wholegrain._core.failure import Failure
from wholegrain.testing import difference

_EXAMPLES = settings().max_examples
_SOME = st.lists(st.integers(0, 60), min_size=1, max_size=6)


def _outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        return type(error)


def _one_by_one(ds: Any, indices: Any) -> list[Any]:
    return [_outcome(ds.getitem, index) for index in indices]


@st.composite
def _indices(draw: Any, length: int) -> Any:
    near = st.integers(-2 * min(length, 100) - 3, 3 * min(length, 100) + 3)
    far = st.integers(0, 2**40) if length < 2**40 else st.integers(0, length - 1)
    indices: list[int] = draw(st.lists(near | far, min_size=1, max_size=12))
    return indices + draw(st.permutations(indices))[: draw(st.integers(0, 4))]


@settings(max_examples=2 * _EXAMPLES)
@given(data=st.data())
def test_a_chunk_equals_its_elements(data: st.DataObject) -> None:
    ds = data.draw(map_datasets(failing=True))
    indices = data.draw(_indices(len(ds)))
    one_by_one = _one_by_one(ds, indices)
    chunk = _outcome(ds.getitems, np.array(indices, dtype=np.int64))
    if isinstance(chunk, type):  # There is no element at all.
        assert set(one_by_one) == {chunk}
        return
    # What fails is a Failure in its place.
    found = [type(one.error) if type(one) is Failure else one for one in chunk]
    assert difference(one_by_one, found) is None


@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_chunks_of_batches_are_right_up_to_the_largest_numbers(data: st.DataObject) -> None:
    """The first epoch of an infinite dataset fits into 64 bits, later ones do not."""
    length = data.draw(st.sampled_from([1, 3, 7, 2**31, 2**61, 2**62 - 1, 2**62 + 5, 2**63 - 1]))
    ds: Any = wg.MapDataset.range(length)
    if length < 2**63 - 1 and data.draw(st.booleans()):
        ds = ds.repeat()
    ds = ds.batch(
        data.draw(st.sampled_from([1, 2, 3, 64, 2**10])), drop_remainder=data.draw(st.booleans())
    )
    if not len(ds):
        return
    ends = [0, len(ds), -len(ds), 2**62, 2**63 - 1, -(2**63)]
    near = st.builds(int.__add__, st.sampled_from(ends), st.integers(-3, 3))
    inside = near.filter(lambda index: -(2**63) <= index < 2**63)
    indices = data.draw(st.lists(inside, min_size=1, max_size=4))
    one_by_one = _one_by_one(ds, indices)
    chunk = _outcome(ds.getitems, np.array(indices, dtype=np.int64))
    assert difference(one_by_one, list(chunk)) is None


@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_every_node_above_it_agrees(data: st.DataObject) -> None:
    """Not only the last node: an error in one may be undone by the next."""
    ds = data.draw(map_datasets())
    while True:
        if len(ds):
            indices = np.array(data.draw(_SOME), dtype=np.int64)
            one_by_one = _one_by_one(ds, indices.tolist())
            if not any(isinstance(outcome, type) for outcome in one_by_one):
                assert difference(one_by_one, list(ds.getitems(indices))) is None, str(ds)
        if not ds.parents:
            break
        ds = data.draw(st.sampled_from(ds.parents))


@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_by_index_and_by_brackets_are_the_same(data: st.DataObject) -> None:
    ds = data.draw(map_datasets(failing=True))
    for index in data.draw(_indices(len(ds))):
        one, other = _outcome(ds.__getitem__, index), _outcome(ds.getitem, index)
        if isinstance(one, type) or isinstance(other, type):
            assert one is other
        else:
            assert difference(one, other) is None


@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_iterating_gives_the_elements_that_are_there(data: st.DataObject) -> None:
    ds = data.draw(map_datasets())[:60]
    elements = _one_by_one(ds, range(len(ds)))
    if any(isinstance(element, type) for element in elements):
        return
    assert difference([e for e in elements if e is not None], list(ds)) is None
    with_gaps = list(ds.to_iter_dataset(allow_nones=True))
    assert difference(elements, with_gaps) is None


@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_batches_of_arrays_are_batches_of_their_rows(data: st.DataObject) -> None:
    """Rows of an array are gathered at once; a list of the same rows is stacked one by one."""
    length = data.draw(st.integers(1, 30))
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    rows = np.arange(length * int(np.prod(shape)), dtype="f4").reshape(length, *shape)

    def build(source: Any) -> Any:
        ds: Any = wg.MapDataset.source(source)
        for stage in stages:
            ds = stage(ds)
        return ds.batch(size, drop_remainder=drop_remainder)

    start, step = data.draw(st.integers(0, 5)), data.draw(st.sampled_from([1, 2, -1]))
    choices: list[Any] = [
        lambda ds: ds.shuffle(seed=3),
        lambda ds: ds[start::step],
        lambda ds: ds.repeat(2),
        lambda ds: ds.seed(1),
        lambda ds: ds.slice([2, 0, 50]),
        lambda ds: wg.experimental.WindowShuffleMapDataset(ds, window_size=4, seed=1),
        lambda ds: ds.map(lambda x: x),
    ]
    stages = data.draw(st.lists(st.sampled_from(choices), max_size=3))
    size, drop_remainder = data.draw(st.integers(1, 7)), data.draw(st.booleans())
    array, plain = build(rows), build(list(rows))
    assert len(array) == len(plain)
    indices = np.array(data.draw(_SOME), dtype=np.int64) - 5
    found, expected = _outcome(array.getitems, indices), _outcome(plain.getitems, indices)
    if isinstance(expected, type):
        assert found is expected is ZeroDivisionError
        return
    assert difference(list(expected), list(found)) is None
    for index in indices.tolist():
        assert difference(plain[index], array[index]) is None
    assert difference(list(plain), list(array)) is None
