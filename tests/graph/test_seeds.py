"""Seeds: what follows from `ds.seed(...)`, and where it is seen."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R, X, source


def _same(element: Any, *_: Any) -> Any:
    return element


def _draw(_: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(2**32))


def _mixed(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])


def _shuffle_seed(ds: wg.MapDataset[Any]) -> int:
    """Return which of the known seeds a shuffle of `ds` uses."""
    order = list(ds.shuffle())
    for seed in _SEEDS:
        if order == list(ds.shuffle(seed=seed)):
            return seed
    raise AssertionError("a seed that is not in the table")


_SEEDS = [3329053876, 955475868, 307626447, 3226123765, 3796490668, 497457852, 197316668]


def test_known_seeds() -> None:
    ds = R(40)
    assert _shuffle_seed(ds.seed(42)) == 3329053876
    assert _shuffle_seed(ds.seed(42).map(_same)) == 955475868
    assert _shuffle_seed(ds.seed(1).map(_same).seed(2)) == 307626447
    assert _shuffle_seed(ds.seed(2**40 + 3)) == 197316668
    mixed = wg.MapDataset.mix([ds.seed(1), ds.seed(2).shuffle(), ds])
    assert _shuffle_seed(mixed) == 497457852
    swapped = wg.MapDataset.mix([ds.seed(2).shuffle(), ds.seed(1), ds])
    assert _shuffle_seed(swapped) == 497457852


def test_known_seeds_in_order() -> None:
    ds = R(5)
    above, below = ds.seed(5).to_iter_dataset(), ds.to_iter_dataset().seed(5)
    assert list(above.random_map(_draw)) == list(above.random_map(_draw, seed=3226123765))
    assert list(below.random_map(_draw)) == list(below.random_map(_draw, seed=3796490668))


def test_the_data_is_not_changed() -> None:
    assert list(R(5).seed(3)) == [0, 1, 2, 3, 4]
    assert list(R(5).to_iter_dataset().seed(3)) == [0, 1, 2, 3, 4]


def test_the_seed_depends_on_the_distance() -> None:
    ds = R(100).seed(3)
    orders = set()
    for distance in range(1, 6):
        orders.add(tuple(ds.shuffle()))
        assert tuple(ds.shuffle()) == tuple(ds.shuffle(seed=_mixed(3, distance)))
        ds = ds.map(_same)
    assert len(orders) == 5


def test_an_explicit_seed_wins() -> None:
    assert list(R(30).seed(1).shuffle(seed=9)) == list(R(30).shuffle(seed=9))
    assert list(R(30).seed(1).shuffle(0)) == list(R(30).shuffle(seed=0))


def test_the_base_seed_may_be_of_any_size() -> None:
    for seed in (0, 2**32, 2**100):
        assert sorted(R(20).seed(seed).shuffle()) == list(range(20))


def test_none_is_no_seed() -> None:
    with pytest.raises(ValueError, match="needs a seed"):
        R(3).seed(None).shuffle()


def test_a_wrong_base_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        R(3).seed(-1)
    with pytest.raises(TypeError, match="whole number"):
        R(3).seed(1.5)
    with pytest.raises(ValueError, match="cannot be negative"):
        R(3).to_iter_dataset().seed(-1)


def _prefetched(ds: wg.IterDataset[Any]) -> Any:
    return X.multithread_prefetch(ds, 2, 1)


def test_prefetching_does_not_hide_a_seed() -> None:
    ds = R(12).seed(5).to_iter_dataset()
    plain = list(ds.random_map(_draw))
    assert list(_prefetched(ds).random_map(_draw)) == plain
    assert list(_prefetched(ds.random_map(_draw))) == plain
    one = X.multithread_prefetch(ds, 1, 1)
    assert list(one.random_map(_draw)) == plain


def test_a_seed_inside_a_source_or_interleaved_datasets_is_not_seen() -> None:
    hidden = source(R(3).seed(1))
    with pytest.raises(ValueError, match="needs a seed"):
        hidden.shuffle()
    interleaved = X.InterleaveIterDataset([R(3).seed(1)], cycle_length=1)
    with pytest.raises(ValueError, match="needs a seed"):
        interleaved.random_map(_same)


def test_a_subclass_can_ask_for_its_seed() -> None:
    class Mine(wg.MapDataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            return self._default_seed

    assert Mine(R(3).seed(7))[0] == _mixed(7, 1)
    assert Mine(R(3))[0] is None
