"""`on_error("replace")` of an IterDataset: the next element that does not fail takes the place."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.failing import Broken, FailsFor, until_error, with_workers
from wholegrain.experimental import ElasticIterator, FlatMapMapDataset, ThreadPrefetchIterDataset
from wholegrain.sharding import ShardOptions

N = 60
BAD = frozenset({0, 1, 17, 18, 19, 20, 41, 58, 59})


def stream(broken: frozenset[int], policy: Any = "replace", **limits: Any) -> Any:
    ds: Any = wg.MapDataset.source(Broken(N, frozenset(x for x in broken if x % 2)))
    ds = ds.to_iter_dataset().map(FailsFor(*broken))
    return ds.on_error(policy, **{"budget": None, "consecutive": None, **limits})


def model(numbers: Any, broken: frozenset[int]) -> list[int]:
    """Replace the broken numbers of a share."""
    share = list(numbers)
    good = [x for x in share if x not in broken]
    return [next((y for y in share[at:] if y not in broken), good[0]) for at in range(len(share))]


@settings(max_examples=20)
@given(broken=st.frozensets(st.integers(0, N - 1), max_size=N - 1), stop=st.integers(0, N))
def test_the_stream_equals_the_model_after_a_restore_anywhere(
    broken: frozenset[int], stop: int
) -> None:
    expected = model(range(N), broken)
    ds = stream(broken)
    it = iter(ds)
    states, got = [it.get_state()], []
    for element in it:
        got.append(element)
        states.append(it.get_state())
    assert got == expected
    assert len(it.errors()) == len(broken)
    other = iter(ds)
    other.set_state(json.loads(json.dumps(states[stop])))
    assert list(other) == expected[stop:]
    assert len(other.errors()) == sum(x >= stop for x in broken)
    batches = iter(ThreadPrefetchIterDataset(ds.batch(7), prefetch_buffer_size=2))
    assert np.concatenate(list(batches)).tolist() == expected
    assert [it.provenance(step)[0].index for step in (0, N - 1)] == [expected[0], expected[-1]]


@pytest.mark.parametrize("workers", [0, 2])
def test_lanes_replace_the_same_elements_with_any_number_of_workers(workers: int) -> None:
    lanes = [model(range(lane, N, 4), BAD) for lane in range(4)]
    expected = [lanes[n % 4][n // 4] for n in range(N)]
    options = wg.MultiprocessingOptions(num_workers=workers, lanes=4)
    with iter(stream(BAD).mp_prefetch(options)) as it:
        assert list(it) == expected
        assert len(it.errors()) == len(BAD)
    hosts = [
        ElasticIterator(
            stream(BAD),
            4,
            ShardOptions(host, 2),
            lanes=4,
            steps="count",
            multiprocessing_options=options if workers else None,
        )
        for host in range(2)
    ]
    rows = [np.concatenate(step) for step in zip(*hosts, strict=True)]
    assert np.concatenate(rows).tolist() == expected
    for host in hosts:
        host.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_limits_end_the_run_at_the_same_element(workers: int) -> None:
    for limits, at in (({"budget": 2}, 17), ({"consecutive": 3}, 20), ({"budget": 4 / N}, 19)):
        ds = with_workers(stream(BAD, **limits), workers)
        elements, error = until_error(iter(ds))
        assert isinstance(error, wg.TooManyErrorsError)
        assert len(elements) == at
    assert until_error(iter(with_workers(stream(BAD, budget=len(BAD) / N), workers)))[1] is None


def test_without_any_good_element_the_error_is_raised() -> None:
    elements, error = until_error(iter(stream(frozenset(range(N)))))
    assert elements == []
    assert isinstance(error, ValueError | OSError)


def test_substitutes_are_copies() -> None:
    ds = wg.MapDataset.range(3).to_iter_dataset().map(FailsFor(0)).map(lambda x: np.array([x]))
    first, second, _ = ds.on_error("replace")
    first += 10
    assert second.tolist() == [1]


def test_an_error_of_the_program_is_raised_in_its_place() -> None:
    def use(x: int) -> int:
        if x == 3:
            raise NameError("mine")
        return FailsFor(2, 4)(x)

    it = iter(wg.MapDataset.range(7).to_iter_dataset().map(use).on_error("replace"))
    found: list[Any] = []
    for _ in range(7):
        try:
            found.append(next(it))
        except NameError:
            found.append("NameError")
    assert found == [0, 1, 5, "NameError", 5, 5, 6]


def test_a_share_needs_a_known_number_of_elements() -> None:
    filtered = wg.MapDataset.range(5).to_iter_dataset().filter(lambda x: x > 2)
    with pytest.raises(ValueError, match="not known for this IterDataset"):
        filtered.on_error("skip", budget=0.1)


class _Copies(wg.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element] * (element % 4)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_flat_map_splits_substitutes_and_counts_failures_once(policy: Any) -> None:
    tolerant = wg.MapDataset.range(N).map(FailsFor(*BAD)).on_error(policy, budget=None)
    ds = FlatMapMapDataset(tolerant, _Copies())
    expected = [x for x in (ds[index] for index in range(len(ds))) if x is not None]
    for options in (wg.ReadOptions(0, 0), wg.ReadOptions(2, 8)):
        it = iter(ds.to_iter_dataset(options))
        assert list(it) == expected
        assert len(it.errors()) == it.report().failures == len(BAD)
