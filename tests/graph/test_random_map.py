"""random_map: each position has random numbers of its own."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import READ_OPTIONS, R, X, source
from wholegrain._core.failure import Failure
from wholegrain.testing import check_iter_dataset, check_map_dataset


def _draw(element: Any, rng: np.random.Generator) -> Any:
    return element, float(rng.random()), int(rng.integers(1000, dtype=np.uint32))


class Draw(wg.transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return _draw(element, rng)


def _expected(seed: int, position: int, element: Any) -> Any:
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    philox = np.random.Philox(key=key, counter=[0, 0, 0, position])
    return _draw(element, np.random.Generator(philox))


@pytest.mark.parametrize("seed", [0, 1, 123, 2**32 + 1, 2**70])
def test_numbers_are_those_of_a_philox_generator_at_the_index(seed: int) -> None:
    ds = wg.MapDataset.range(5).random_map(_draw, seed=seed)
    for index in (0, 1, 4, 5, 9, 2**40):
        assert ds[index] == _expected(seed, index, index % 5)
    assert list(ds) == [_expected(seed, index, index) for index in range(5)]
    it = wg.MapDataset.range(5).to_iter_dataset().random_map(_draw, seed=seed)
    assert list(it) == [_expected(seed, index, index) for index in range(5)]


def test_known_values() -> None:
    ds = wg.MapDataset.range(10)
    assert ds.random_map(lambda _, rng: rng.random(), seed=123)[0] == 0.9000765064874395
    assert ds.random_map(lambda _, rng: rng.random(), seed=123)[3] == 0.7061769878249383
    assert ds.random_map(lambda _, rng: rng.random(), seed=7)[5] == 0.8051444083840381


def test_how_much_one_element_draws_does_not_change_another() -> None:
    def greedy(element: int, rng: np.random.Generator) -> float:
        if element % 2:
            rng.random(1 + 17 * element)
            rng.integers(10, size=3, dtype=np.uint32)
            rng.normal(size=7)
        return float(rng.random()) if element % 2 == 0 else 0.0

    modest = list(wg.MapDataset.range(20).random_map(_draw, seed=5))
    for ds in (wg.MapDataset.range(20), wg.MapDataset.range(20).to_iter_dataset()):
        drawn = list(ds.random_map(greedy, seed=5))
        assert drawn[::2] == [value for _, value, _ in modest[::2]]


def test_epochs_differ_unless_told_not_to() -> None:
    ds = wg.MapDataset.range(4).random_map(_draw, seed=3)
    first, second = list(ds.repeat(2))[:4], list(ds.repeat(2))[4:]
    assert [e[0] for e in first] == [e[0] for e in second]
    assert all(a[1] != b[1] for a, b in zip(first, second, strict=True))
    assert list(ds.repeat(2, reseed_each_epoch=False)) == first * 2


def test_repeating_in_order_repeats_the_numbers() -> None:
    ds = wg.MapDataset.range(3).to_iter_dataset().random_map(_draw, seed=3)
    epoch = list(ds)
    assert list(X.RepeatIterDataset(ds, 2)) == epoch * 2


def test_none_is_counted_but_not_passed_to_the_function() -> None:
    ds = source(["a", None, "b"])
    expected = [_expected(9, 0, "a"), None, _expected(9, 2, "b")]
    assert [ds.random_map(_draw, seed=9)[i] for i in range(3)] == expected
    assert list(ds.to_iter_dataset(allow_nones=True).random_map(_draw, seed=9)) == expected


def test_a_function_and_an_object_do_the_same() -> None:
    ds = wg.MapDataset.range(4)
    assert list(ds.random_map(Draw(), seed=1)) == list(ds.random_map(_draw, seed=1))
    it = ds.to_iter_dataset()
    assert list(it.random_map(Draw(), seed=1)) == list(it.random_map(_draw, seed=1))


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_numbers_are_the_same_with_any_number_of_threads(options: wg.ReadOptions) -> None:
    ds = wg.MapDataset.range(100).random_map(_draw, seed=11)
    expected = [_expected(11, index, index) for index in range(100)]
    assert list(ds.to_iter_dataset(options)) == expected


def test_two_stages_with_one_seed_draw_the_same_but_do_not_disturb_each_other() -> None:
    ds = wg.MapDataset.range(6)
    twice = ds.random_map(_draw, seed=2).random_map(_draw, seed=2)
    assert [e[1:] for e in twice] == [e[0][1:] for e in twice]
    it = ds.to_iter_dataset().random_map(_draw, seed=2).random_map(_draw, seed=2)
    assert list(it) == list(twice)


def test_negative_indices_have_no_random_numbers() -> None:
    ds = wg.MapDataset.range(4).random_map(_draw, seed=1)
    with pytest.raises(OverflowError, match="index -1") as raised:
        ds[-1]
    assert "from 0 on" in str(raised.value)
    first, failure = ds.getitems(np.array([2, -3]))
    assert first == ds[2]
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, OverflowError)


def test_a_seed_is_needed() -> None:
    ds = wg.MapDataset.range(4)
    for dataset in (ds, ds.to_iter_dataset()):
        with pytest.raises(ValueError, match="random_map") as raised:
            dataset.random_map(_draw)
        assert "ds.seed(" in str(raised.value)


def test_the_seed_is_a_keyword() -> None:
    with pytest.raises(TypeError):
        R(3).random_map(_draw, 3)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative, but got seed=-1"):
        wg.MapDataset.range(4).random_map(_draw, seed=-1)
    with pytest.raises(ValueError, match="cannot be negative, but got seed=-1"):
        wg.MapDataset.range(4).to_iter_dataset().random_map(_draw, seed=-1)


def test_the_counter_is_part_of_the_state() -> None:
    ds = wg.MapDataset.range(9).filter(lambda x: x in (0, 2, 5)).to_iter_dataset()
    it = iter(ds.random_map(_draw, seed=1))
    next(it)
    next(it)
    assert it.get_state() == {"parent": {"next_index": 3}, "index_for_rng": 2}


def test_reads_chunks_as_elements_and_resumes() -> None:
    check_map_dataset(wg.MapDataset.range(9).random_map(_draw, seed=4))
    it = wg.MapDataset.range(9).to_iter_dataset().random_map(_draw, seed=4)
    check_iter_dataset(it)
    check_iter_dataset(it.batch(4))
    check_iter_dataset(it.filter(lambda e: e[1] > 0.3).batch(2))
