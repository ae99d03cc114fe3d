"""DataLoaders whose number of workers is found out, and states for any number of workers."""

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.samplers import IndexSampler
from wholegrain.sharding import ShardOptions


class _Double(wg.transforms.Map):
    def map(self, element: int) -> int:
        return 2 * element


class _AddNoise(wg.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return element + int(rng.integers(1000))


class _Odd(wg.transforms.Filter):
    def filter(self, element: int) -> bool:
        return element % 2 == 1


class _Split(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element, element]


def _loader(workers: Any, *operations: Any, **arguments: Any) -> wg.DataLoader:
    sampler = IndexSampler(30, shuffle=True, seed=5, num_epochs=2, shard_options=ShardOptions(1, 2))
    return wg.DataLoader(
        data_source=range(30),
        sampler=sampler,
        operations=operations,
        worker_count=workers,
        **arguments,
    )


def _run(it: Any) -> list[tuple[Any, bytes]]:
    return [(np.asarray(element).tolist(), it.get_state()) for element in it]


@pytest.mark.parametrize(
    "operations",
    [
        (),
        (_Double(), _AddNoise()),
        (_AddNoise(), wg.transforms.Batch(4)),
        (wg.transforms.Batch(4, drop_remainder=True),),
    ],
)
def test_auto_is_as_without_workers(operations: tuple[Any, ...]) -> None:
    expected = _run(iter(_loader(0, *operations)))
    with iter(_loader("auto", *operations)) as it:
        assert _run(it) == expected
        it.set_state(expected[2][1])
        assert _run(it) == expected[3:]


def test_the_number_of_workers_changes_while_it_runs() -> None:
    expected = [element for element, _ in _run(iter(_loader(0, _Double())))]
    with iter(_loader("auto", _Double())) as it:
        found = []
        for count in (2, 1, 3, None):
            it.set_worker_count(count)
            found += [next(it) for _ in range(5)]
        assert found + list(it) == expected


def test_a_fixed_number_of_workers_cannot_be_changed() -> None:
    for workers in (0, 2):
        with iter(_loader(workers)) as it, pytest.raises(ValueError, match='num_workers="auto"'):
            it.set_worker_count(2)


@settings(max_examples=6)
@given(
    step=st.integers(0, 30),
    workers=st.permutations([0, 2, 3, "auto"]),
)
def test_states_restore_with_any_number_of_workers(step: int, workers: list[Any]) -> None:
    operations = (_Double(), _AddNoise())
    expected = list(_loader(0, *operations))
    with iter(_loader(workers[0], *operations)) as it:
        assert [next(it) for _ in range(step)] == expected[:step]
        state = it.get_state()
    with iter(_loader(workers[1], *operations)) as it:
        it.set_state(state)
        assert list(it) == expected[step:]


def test_one_worker_does_what_none_does() -> None:
    operations = (_Odd(), wg.transforms.Batch(3))
    expected = _run(iter(_loader(0, *operations)))
    with iter(_loader(1, *operations)) as it:
        it.set_state(expected[1][1])
        assert [element for element, _ in _run(it)] == [element for element, _ in expected[2:]]


def test_batches_of_several_workers_are_not_those_of_auto() -> None:
    with iter(_loader(2, wg.transforms.Batch(4))) as it:
        next(it)
        state = it.get_state()
    with (
        iter(_loader("auto", wg.transforms.Batch(4))) as it,
        pytest.raises(ValueError, match=r"worker_count=2, but.*worker_count=auto"),
    ):
        it.set_state(state)


@pytest.mark.parametrize("operation", [_Odd(), _Split()])
def test_operations_whose_places_do_not_tell_are_refused(operation: Any) -> None:
    with pytest.raises(ValueError, match=type(operation).__name__):
        _loader("auto", operation)


def test_the_buffer_can_be_found_out_too() -> None:
    with iter(_loader("auto", _Double(), worker_buffer_size="auto")) as it:
        assert list(it) == list(_loader(0, _Double()))
    with pytest.raises(ValueError, match='needs num_workers="auto"'):
        _loader(2, _Double(), worker_buffer_size="auto")


class _Pid(wg.transforms.Map):
    def map(self, element: int) -> int:
        return os.getpid()


def test_workers_make_the_elements() -> None:
    with iter(_loader("auto", _Pid())) as it:
        assert os.getpid() not in set(it)
