"""None means that there is no element: what each stage makes of it."""

import itertools
import re
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R, X, as_lists, source


class Parts(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return ["none"] if element is None else [element, element]


def _refuse(*arguments: Any) -> Any:
    assert None not in arguments
    return arguments[-1]


def _gaps() -> Any:
    return source([1, None, 3])


def _by_index(ds: Any) -> list[Any]:
    one_by_one = [ds[i] for i in range(len(ds))]
    assert list(ds.getitems(np.arange(len(ds)))) == one_by_one
    return one_by_one


def test_by_index_none_passes_without_a_call() -> None:
    assert _by_index(_gaps().map(_refuse)) == [1, None, 3]
    assert _by_index(_gaps().map_with_index(lambda _, x: _refuse(x))) == [1, None, 3]
    assert _by_index(_gaps().random_map(lambda x, _: _refuse(x), seed=1)) == [1, None, 3]
    assert _by_index(_gaps().filter(_refuse)) == [1, None, 3]
    flat = X.FlatMapMapDataset(_gaps(), Parts())
    assert _by_index(flat) == [1, 1, None, None, 3, 3]


def test_none_moves_like_any_element() -> None:
    shuffled = _gaps().shuffle(seed=1)
    order = [R(3).shuffle(seed=1)[i] for i in range(3)]
    assert _by_index(shuffled) == [[1, None, 3][i] for i in order]
    assert _by_index(_gaps()[::-1]) == [3, None, 1]
    assert _by_index(_gaps().repeat(2)) == [1, None, 3, 1, None, 3]
    assert _by_index(wg.MapDataset.concatenate([_gaps(), R(1)])) == [1, None, 3, 0]
    assert _by_index(wg.MapDataset.mix([_gaps(), R(3)])) == [1, 0, None, 1, 3, 2]
    assert _by_index(_gaps().seed(1)) == [1, None, 3]


def test_in_a_tuple_none_is_part_of_an_element() -> None:
    assert _by_index(X.ZipMapDataset([_gaps(), R(3)])) == [(1, 0), (None, 1), (3, 2)]
    assert len(list(X.ZipMapDataset([_gaps(), R(3)]))) == 3


def test_iterating_leaves_none_out() -> None:
    it = iter(_gaps())
    assert [next(it), it.get_state(), next(it), it.get_state()] == [
        *(1, {"next_index": 1}),
        *(3, {"next_index": 3}),
    ]


def test_in_order_none_passes_maps_without_a_call_and_counts() -> None:
    ds = _gaps().to_iter_dataset(allow_nones=True)
    assert list(ds) == [1, None, 3]
    assert list(ds.map(_refuse)) == [1, None, 3]
    assert list(ds.map_with_index(lambda i, x: (i, _refuse(x)))) == [(0, 1), None, (2, 3)]
    drawn = list(ds.random_map(lambda _, rng: rng.random(), seed=1))
    assert drawn[1] is None
    assert drawn[2] == R(3).random_map(lambda _, rng: rng.random(), seed=1)[2]


def test_in_order_every_other_stage_gets_it_like_any_value() -> None:
    ds = _gaps().to_iter_dataset(allow_nones=True)
    assert list(ds.filter(lambda x: x is None)) == [None]
    assert list(X.FlatMapIterDataset(ds, Parts())) == [1, 1, "none", 3, 3]
    assert as_lists(ds.batch(2, batch_fn=list)) == [[1, None], [3]]
    (batch,) = ds.batch(3)
    assert batch.dtype == object
    assert batch.tolist() == [1, None, 3]
    assert list(X.LimitIterDataset(ds, 2)) == [1, None]
    assert list(X.CacheIterDataset(ds)) == [1, None, 3]
    assert sorted(map(str, X.WindowShuffleIterDataset(ds, window_size=3, seed=1))) == [
        *("1", "3", "None")
    ]
    assert list(X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2)) == [1, None, 3]
    assert list(X.InterleaveIterDataset([ds, ds], cycle_length=2)) == [1, 1, None, None, 3, 3]
    assert list(X.ZipIterDataset([ds, ds])) == [(1, 1), (None, None), (3, 3)]
    assert list(wg.IterDataset.mix([ds, ds])) == [1, 1, None, None, 3, 3]
    assert list(X.RepeatIterDataset(ds, 2)) == [1, None, 3] * 2


def _forgets_to_return(element: int) -> Any:
    element + 1


@pytest.mark.parametrize(
    ("ds", "stage"),
    [
        (
            R(10).repeat().map(_forgets_to_return),
            "Map.*_forgets_to_return.*returned None",
        ),
        (
            R(10).map(_forgets_to_return).repeat(),
            "Map.*_forgets_to_return.*returned None",
        ),
        (R(7).shuffle(seed=1).repeat().map(_forgets_to_return)[::3], "There is no filter"),
        (R(10).repeat().filter(lambda _: False), "Check that the filter .FilterMapDataset"),
        (R(10).repeat().to_iter_dataset().filter(lambda _: False), "FilterDatasetIterator"),
        (
            R(10).repeat().to_iter_dataset().filter(lambda _: False).batch(2),
            "FilterDatasetIterator",
        ),
        (wg.MapDataset.mix([R(5).repeat(), R(6).repeat()]).filter(lambda _: False), "filter"),
        (R(10).repeat().map_with_index(lambda *_: None), "returned None"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("num_threads", [0, 3])
def test_an_endless_pipeline_that_can_give_nothing_says_which_stage_drops_all(
    ds: Any, stage: str, num_threads: int
) -> None:
    if isinstance(ds, wg.MapDataset):
        ds = ds.to_iter_dataset(wg.ReadOptions(num_threads, 16))
    it = iter(ds)
    with pytest.raises(ValueError, match="An infinite pipeline yields no elements") as raised:
        next(it)
    assert re.search(stage, str(raised.value))
    it.close()


def test_an_endless_pipeline_may_give_few_elements() -> None:
    rare = R(100_000).repeat().filter(lambda x: x == 99_999).to_iter_dataset()
    assert list(itertools.islice(rare, 3)) == [99_999] * 3
    late = R(10).repeat().map_with_index(lambda i, x: x if i > 50_000 else None).to_iter_dataset()
    assert next(iter(late)) == 1
    assert list(R(50_000).filter(lambda _: False).to_iter_dataset()) == []


def test_elements_before_the_endless_rest_are_handed_out() -> None:
    first = set(range(5))

    def keeps(_: int) -> bool:
        return bool(first and first.pop() is not None)

    it = iter(R(10).repeat().to_iter_dataset().filter(keeps).batch(3, batch_fn=list))
    assert next(it) == [0, 1, 2]
    with pytest.raises(ValueError, match="yields no elements"):
        next(it)
