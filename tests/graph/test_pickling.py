"""Datasets can be pickled; iterators cannot, and say what to pickle instead."""

import copy
import pickle
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R, X, finishes, source
from wholegrain.testing import difference


class Parts(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


class Choose(wg.transforms.DatasetSelectionMap):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index % 2, index


def _noise(element: Any, rng: np.random.Generator) -> Any:
    return element, float(rng.random())


_used = R(6).random_map(_noise, seed=0)
_used[0]  # A generator has been made.

_MAP: list[Any] = [
    R(1, 9, 2),
    source([1, 2, 3]),
    source(np.arange(6).reshape(3, 2)),
    R(5).map(lambda x: x + 1),
    R(5).map_with_index(lambda i, x: (i, x)),
    R(5).random_map(_noise, seed=3),
    _used,
    R(5).seed(1).shuffle().random_map(_noise),
    R(5).filter(lambda x: x % 2 == 0),
    R(5).batch(2, drop_remainder=True),
    R(5).batch(2, batch_fn=lambda b: sum(b)),
    R(100_000).shuffle(seed=1)[:5],
    R(5).repeat(2)[1:7:2].slice([3, 1]),
    wg.MapDataset.mix([R(5), R(9)], [1, 2]),
    wg.MapDataset.concatenate([R(5), R(9)]),
    wg.MapDataset.select_from_datasets([R(5), R(9)], Choose()),
    X.ZipMapDataset([R(3), R(3)]),
    X.FlatMapMapDataset(R(3), Parts()),
    X.WindowShuffleMapDataset(R(6), window_size=3, seed=1),
]
_it = R(6).to_iter_dataset()
_ITER: list[Any] = [
    _it,
    R(6).filter(bool).to_iter_dataset(wg.ReadOptions(2, 3), allow_nones=True),
    _it.map(lambda x: x + 1).filter(lambda x: x > 1).batch(2),
    _it.random_map(_noise, seed=1).map_with_index(lambda i, x: (i, x)),
    _it.seed(4).random_map(_noise),
    X.WithOptionsIterDataset(_it, X.DatasetOptions(min_shm_size=3)),
    X.FlatMapIterDataset(_it, Parts()),
    X.RebatchIterDataset(_it.batch(2), 3),
    X.RepeatIterDataset(_it, 2),
    X.LimitIterDataset(_it, 2),
    X.CacheIterDataset(_it),
    X.WindowShuffleIterDataset(_it, window_size=3, seed=1),
    X.ZipIterDataset([_it, _it]),
    wg.IterDataset.mix({"a": _it, "b": _it}, {"a": 1, "b": 2}),
    X.InterleaveIterDataset([R(3), _it], cycle_length=2),
    X.InterleaveIterDataset(R(3).map(R), cycle_length=2),
    X.ThreadPrefetchIterDataset(_it, prefetch_buffer_size=2),
    X.multithread_prefetch(_it, 2, 1),
]


def _named(datasets: list[Any]) -> list[Any]:
    return [pytest.param(ds, id=f"{type(ds).__name__}-{i}") for i, ds in enumerate(datasets)]


@pytest.mark.parametrize("ds", _named([*_MAP, *_ITER]))
def test_a_dataset_gives_the_same_after_pickling(ds: Any) -> None:
    expected = finishes(lambda: list(ds))
    again = cloudpickle.loads(cloudpickle.dumps(ds))
    assert type(again) is type(ds)
    assert difference(expected, finishes(lambda: list(again))) is None
    assert str(again) == str(ds)


def test_plain_pickle_serves_where_functions_allow_it() -> None:
    ds = R(9).shuffle(seed=1).map(abs).random_map(_noise, seed=2).batch(2)
    again = pickle.loads(pickle.dumps(ds))
    assert difference(list(ds), list(again)) is None


def test_a_shuffle_travels_as_its_seed() -> None:
    assert len(cloudpickle.dumps(R(10_000_000).shuffle(seed=1).random_map(_noise, seed=1))) < 5000


def test_a_pool_of_generators_travels_as_its_seed() -> None:
    for seed in (0, 5):
        pool = X.RngPool(seed)
        first = pool.acquire_rng(3)
        expected = first.random()
        pool.release_rng(first)
        again = pickle.loads(pickle.dumps(pool))
        assert again.acquire_rng(3).random() == expected


@pytest.mark.parametrize("ds", _named(_ITER))
def test_an_iterator_says_what_to_pickle_instead(ds: Any) -> None:
    it = iter(ds)
    for dump in (pickle.dumps, cloudpickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="iterator cannot be pickled") as raised:
            dump(it)
        assert "get_state()" in str(raised.value)
    it.close()
