"""Generators are moved by writing memory, or by numpy's setter: both are a fresh Philox."""

import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain._core import philox, rng
from wholegrain.experimental import RngPool

_SEEDS = st.one_of(st.integers(0, 100), st.sampled_from([2**32 - 1, 2**64, 2**127]))
_INDICES = st.one_of(st.integers(0, 1000), st.sampled_from([2**32, 2**63 - 1, 2**64 - 1]))

_DRAWS: list[Any] = [
    lambda r: r.random(),
    lambda r: r.random(5),
    lambda r: r.integers(0, 10, size=3, dtype=np.uint32),  # Leaves half a word behind.
    lambda r: r.integers(0, 2**40),
    lambda r: r.integers(0, 255, size=5, dtype=np.uint8),
    lambda r: r.normal(size=3),
    lambda r: r.standard_normal(dtype=np.float32),
    lambda r: r.permutation(7),
    lambda r: r.choice(9, size=2, replace=False),
    lambda r: r.exponential(),
    lambda r: r.bytes(5),
]


def _fresh(seed: int, index: int, op_seed: int = 0) -> np.random.Generator:
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    counter = np.array([0, 0, op_seed, index], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _drawn(generator: np.random.Generator, draws: list[int]) -> str:
    return repr([_DRAWS[draw](generator) for draw in draws])


@pytest.mark.parametrize("by_memory", [True, False])
@given(
    seed=_SEEDS,
    steps=st.lists(
        st.tuples(
            _INDICES,
            st.sampled_from([0, 0, 1, 2**63]),
            st.lists(st.integers(0, len(_DRAWS) - 1), max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_a_moved_generator_is_a_fresh_one(by_memory: bool, seed: int, steps: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rng, "_memory_is_as_expected", lambda: by_memory)
        pool = RngPool(seed)
        for index, op_seed, draws in steps:
            moved = pool.acquire_rng(index, op_seed=op_seed)
            assert _drawn(moved, draws) == _drawn(_fresh(seed, index, op_seed), draws)
            state, expected = moved.bit_generator.state, _fresh(seed, index, op_seed)
            _drawn(expected, draws)
            assert repr(state["state"]) == repr(expected.bit_generator.state["state"])
            pool.release_rng(moved)
        with pool.lend() as move:
            for index, _, draws in steps:
                assert _drawn(move(index), draws) == _drawn(_fresh(seed, index), draws)


def test_memory_is_written_here() -> None:
    """Where this fails, numpy has a new release: results stay right, but slower."""
    assert rng._memory_is_as_expected()


@pytest.mark.parametrize("version", ["2.99.0", "1.25.2", "3.0.0.dev0+git20260101", "unknown"])
def test_memory_of_an_unknown_numpy_is_not_touched(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(*arguments: Any) -> Any:
        raise AssertionError("The memory of a numpy that nobody has looked at was used.")

    rng._memory_is_as_expected.cache_clear()
    monkeypatch.setattr(np, "__version__", version)
    monkeypatch.setattr(rng, "_mover_by_memory", touch)
    monkeypatch.setattr(rng, "ctypes", None)
    try:
        assert not rng._memory_is_as_expected()
        assert RngPool(3).acquire_rng(4).random() == _fresh(3, 4).random()
    finally:
        rng._memory_is_as_expected.cache_clear()


@pytest.mark.parametrize("version", ["1.26.4", "2.4.0", "2.4.0rc1"])
def test_memory_of_a_known_numpy_is_verified(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rng._memory_is_known(version)
    monkeypatch.setattr(rng, "_BUFFER_OFFSET", 24)  # As if numpy had put something in between.
    rng._memory_is_as_expected.cache_clear()
    try:
        assert not rng._memory_is_as_expected()
    finally:
        rng._memory_is_as_expected.cache_clear()


@pytest.mark.parametrize("by_memory", [True, False])
def test_generators_in_use_do_not_disturb_each_other(
    by_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rng, "_memory_is_as_expected", lambda: by_memory)
    pool = RngPool(3)
    generators = [pool.acquire_rng(index) for index in range(5)]
    assert len({id(generator) for generator in generators}) == 5
    for index, generator in reversed(list(enumerate(generators))):
        assert generator.random() == _fresh(3, index).random()
        pool.release_rng(generator)
    again = pool.acquire_rng(9)
    assert any(again is generator for generator in generators)


def test_a_pool_serves_several_threads() -> None:
    pool = RngPool(5)
    wrong: list[int] = []

    def draw(start: int) -> None:
        for index in range(start, start + 200):
            with pool.lend() as move:
                if move(index).random() != _fresh(5, index).random():
                    wrong.append(index)

    threads = [threading.Thread(target=draw, args=(200 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("by_memory", [True, False])
def test_negative_positions_are_refused(by_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng, "_memory_is_as_expected", lambda: by_memory)
    pool = RngPool(3)
    with pytest.raises(OverflowError, match="-1"):
        pool.acquire_rng(-1)
    assert pool.acquire_rng(1).random() == _fresh(3, 1).random()


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        RngPool(-1)


@given(key=st.integers(0, 2**128 - 1), draw=st.sampled_from(_DRAWS))
def test_a_generator_by_key_is_that_of_numpy(key: int, draw: Any) -> None:
    ours, theirs = philox.generator(key), np.random.Generator(np.random.Philox(key=key))
    assert str(ours.bit_generator.state) == str(theirs.bit_generator.state)
    np.testing.assert_array_equal(draw(ours), draw(theirs))
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(draw(again), draw(theirs))


def test_a_generator_by_key_can_spawn_others() -> None:
    assert len(philox.generator(3).spawn(2)) == 2
