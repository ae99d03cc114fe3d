"""Actors give the elements, the order and the states of local workers."""

import itertools
import os
from typing import Any

import pytest

import wholegrain as wg
from tests.ray.pipelines import PIPELINES, run
from wholegrain.ray import RayBackend
from wholegrain.testing import check_backend
from wholegrain.testing.checks import assert_equal

pytestmark = pytest.mark.usefixtures("cluster")


def _local(name: str, num_workers: Any) -> tuple[list[Any], list[Any]]:
    with run(name, num_workers, "fork") as it:
        states, elements = [it.get_state()], []
        for element in it:
            elements.append(element)
            states.append(it.get_state())
    return elements, states


def test_the_backend_passes_the_checks_of_all_backends() -> None:
    check_backend(RayBackend())


# Starting actors takes most of the time. All combinations: WHOLEGRAIN_RAY_ALL=1
_COUNTS = [1, 2, 4]
_ALL = [(name, count) for name in PIPELINES for count in _COUNTS]
_SOME = [(name, _COUNTS[number % 3]) for number, name in enumerate(PIPELINES)]


@pytest.mark.parametrize(
    ("name", "num_workers"), _ALL if os.environ.get("WHOLEGRAIN_RAY_ALL") else _SOME
)
def test_streams_equal_those_of_local_workers_and_restore_both_ways(
    name: str, num_workers: int
) -> None:
    elements, states = _local(name, num_workers)
    half = len(elements) // 2
    with run(name, num_workers, RayBackend(num_cpus=0.1)) as it:
        came = list(itertools.islice(it, half))
        middle = it.get_state()
        assert middle == states[half]
        assert_equal(elements, came + list(it), f"{name} with {num_workers} actors")
        it.set_state(states[half - 1])  # A state of local workers, in actors that keep running.
        assert_equal(elements[half - 1 :], list(it), "restored on the cluster")
    with run(name, num_workers, "fork") as it:
        it.set_state(middle)
        assert_equal(elements[half:], list(it), "restored on this machine")


@pytest.mark.parametrize("name", ["map", "random map", "large batches"])
def test_auto_workers_give_the_stream_without_workers(name: str) -> None:
    with iter(PIPELINES[name]()) as it:
        expected = list(it)
    with run(name, "auto", RayBackend()) as it:
        assert_equal(expected, list(it), name)


def _loader(workers: int, backend: Any) -> Any:
    source = wg.sources.RangeDataSource(0, 50, 1)
    sampler = wg.samplers.IndexSampler(50, shuffle=True, seed=1, num_epochs=2)
    return wg.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[wg.transforms.Batch(3)],
        worker_count=workers,
        worker_backend=backend,
    )


@pytest.mark.parametrize("workers", [1, 4] if os.environ.get("WHOLEGRAIN_RAY_ALL") else [2])
def test_a_data_loader_gives_the_same_batches_and_states(workers: int) -> None:
    expected = list(_loader(workers, None))
    it = iter(_loader(workers, RayBackend(num_cpus=0.1)))
    came = [next(it) for _ in range(5)]
    state = it.get_state()
    assert_equal(expected, came + list(it), "batches")
    local = iter(_loader(workers, None))
    local.set_state(state)
    assert_equal(expected[5:], list(local), "restored on this machine")


@pytest.mark.parametrize("name", ["filter", "packing"])
def test_lanes_are_the_same_on_actors_and_here(name: str) -> None:
    def opened(workers: int, backend: Any) -> Any:
        options = wg.MultiprocessingOptions(num_workers=workers, lanes=4, backend=backend)
        return iter(PIPELINES[name]().mp_prefetch(options))

    with opened(0, None) as it:
        expected = list(it)
    half = len(expected) // 2
    with opened(2, RayBackend(num_cpus=0.1)) as it:
        came = list(itertools.islice(it, half))
        state = it.get_state()
        assert_equal(expected, came + list(it), f"{name} in lanes on actors")
    with opened(3, "fork") as it:
        it.set_state(state)
        assert_equal(expected[half:], list(it), "restored with other workers")


def test_an_elastic_iterator_gives_the_same_global_batches_from_actors() -> None:
    def batches(hosts: int, backend: Any) -> list[list[int]]:
        ds = wg.MapDataset.range(200).shuffle(seed=3).filter(lambda n: n % 3 != 0)
        options = None
        if backend is not None:
            options = wg.MultiprocessingOptions(num_workers=1, backend=backend)
        its = [
            wg.experimental.ElasticIterator(
                ds,
                8,
                wg.sharding.ShardOptions(host, hosts),
                lanes=4,
                steps=10,
                multiprocessing_options=options,
            )
            for host in range(hosts)
        ]
        found = [[int(x) for it in its for x in next(it)] for _ in range(10)]
        for it in its:
            it.close()
        return found

    assert batches(2, RayBackend(num_cpus=0.1)) == batches(1, None)
