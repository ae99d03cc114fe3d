"""`backend="threads"`: workers that are threads of this process."""

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.tools import eventually, leave_out_threads_of_earlier_tests, our_threads


def _options(num_workers: Any, backend: Any = "threads", **more: Any) -> wg.MultiprocessingOptions:
    return wg.MultiprocessingOptions(num_workers=num_workers, backend=backend, **more)


def _pipeline(length: int, batch: int) -> wg.IterDataset[Any]:
    ds = wg.MapDataset.range(length).seed(3).shuffle()
    mapped = ds.random_map(lambda x, rng: x * 1000 + int(rng.integers(1000)))
    return mapped.to_iter_dataset().batch(batch)


def _elements_and_states(it: Any) -> list[tuple[list[int], Any]]:
    return [(element.tolist(), it.get_state()) for element in it]


@pytest.mark.parametrize("sequential_slice", [False, True])
def test_elements_order_and_states_are_those_of_processes(sequential_slice: bool) -> None:
    ds = _pipeline(23, 3)
    processes = iter(ds.mp_prefetch(_options(2, "fork"), sequential_slice=sequential_slice))
    threads = iter(ds.mp_prefetch(_options(2), sequential_slice=sequential_slice))
    expected = _elements_and_states(processes)
    assert _elements_and_states(threads) == expected
    for position, (_, state) in enumerate(expected):
        for it in (processes, threads):  # Each restores what the other saved.
            it.set_state(state)
            assert _elements_and_states(it) == expected[position + 1 :]


@given(
    length=st.integers(1, 40), batch=st.integers(1, 4), workers=st.integers(1, 4), data=st.data()
)
def test_a_restore_at_any_step_continues(
    length: int, batch: int, workers: int, data: st.DataObject
) -> None:
    ds = _pipeline(length, batch).mp_prefetch(_options(workers))
    with iter(ds) as it:
        initial = it.get_state()
        expected = _elements_and_states(it)
    at = data.draw(st.integers(0, len(expected)))
    with iter(ds) as it:
        it.set_state(expected[at - 1][1] if at else initial)
        assert _elements_and_states(it) == expected[at:]


def test_functions_run_in_this_process_and_arrays_are_not_copied() -> None:
    rows = [np.full(100_000, number) for number in range(4)]
    ds = wg.MapDataset.source(rows).to_iter_dataset().mp_prefetch(_options(2))
    assert all(row is element for row, element in zip(rows, ds, strict=True))
    pids = wg.MapDataset.range(4).map(lambda _: os.getpid()).to_iter_dataset()
    assert set(pids.mp_prefetch(_options(2))) == {os.getpid()}


def _fails_at_5(number: int) -> int:
    if number == 5:
        raise KeyError(number)
    return number


def test_an_exception_comes_at_its_element_and_the_others_follow() -> None:
    ds = wg.MapDataset.range(9).map(_fails_at_5).to_iter_dataset()
    with iter(ds.mp_prefetch(_options(2))) as it:
        assert [next(it) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(KeyError, match="5"):
            next(it)
        assert list(it) == [6, 7, 8]


def test_no_thread_is_left_after_close() -> None:
    leave_out_threads_of_earlier_tests()
    it = iter(wg.MapDataset.range(100).to_iter_dataset().mp_prefetch(_options(2)))
    assert next(it) == 0
    assert our_threads()
    it.close()
    assert eventually(lambda: not our_threads())


def test_a_data_loader_runs_in_threads() -> None:
    sampler = wg.samplers.IndexSampler(
        20, wg.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=1
    )
    found = [
        list(
            wg.DataLoader(
                data_source=range(20), sampler=sampler, worker_count=2, worker_backend=backend
            )
        )
        for backend in ("threads", "fork")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "init_fn", "message"),
    [
        (_options("auto"), None, "needs a number of threads"),
        (_options(2, lanes=4), None, "has no lanes, but got lanes=4"),
        (_options(2), lambda index, count: None, "starts no processes"),
    ],
)
def test_what_only_processes_do_is_refused_at_once(
    options: Any, init_fn: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        wg.MapDataset.range(4).to_iter_dataset().mp_prefetch(options, init_fn)
