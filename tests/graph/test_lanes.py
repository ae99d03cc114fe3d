"""Lanes: the order and states of a number of workers, run by another number of them."""

import copy
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.checkpoint.lane_pipelines import fails_at_37, is_kept, random_pipeline
from tests.graph.tools import R, X
from tests.workers.processes import descendants, is_running
from wholegrain._graph.lane_workers import LaneWorkers
from wholegrain.multiprocessing import set_worker_count

LANES = 4


def lanes(ds: Any, workers: Any, count: int = LANES, **more: Any) -> Any:
    """Return the pipeline with lanes."""
    ds = ds.to_iter_dataset() if isinstance(ds, wg.MapDataset) else ds
    options = wg.MultiprocessingOptions(num_workers=workers, lanes=count, **more)
    return ds.mp_prefetch(options)


def as_workers(ds: Any, count: int = LANES) -> Any:
    ds = ds.to_iter_dataset() if isinstance(ds, wg.MapDataset) else ds
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=count))


def text_of(element: Any) -> str:
    # With jax, the order of keys depends on whether the process has imported it.
    return json.dumps(element, default=lambda leaf: np.asarray(leaf).tolist(), sort_keys=True)


def run(it: Any, then: Callable[[int], None] = lambda step: None) -> list[Any]:
    """Return what each `next` gives, with the state after it; call `then` after each step."""
    found: list[Any] = [it.get_state()]
    for step in itertools.count():
        try:
            element = text_of(next(it))
        except StopIteration:
            break
        except RuntimeError as error:
            element = str(error)
        found.append((element, it.get_state()))
        then(step)
    found.append(it.get_state())
    it.close()
    return found


# Each example starts workers several times, so there are few unless more are asked for.
_FEW = settings(max_examples=max(4, settings().max_examples // 25))


@_FEW
@given(seed=st.integers(0, 10**6), workers=st.sampled_from([1, 2, 3, 4, "auto"]))
def test_lanes_give_the_elements_and_states_of_as_many_workers(seed: int, workers: Any) -> None:
    ds = random_pipeline(seed)
    expected = run(iter(as_workers(ds)))
    assert run(iter(lanes(ds, 0))) == expected
    assert run(iter(lanes(ds, workers))) == expected


@_FEW
@given(seed=st.integers(0, 10**6), step=st.integers(0, 30))
def test_any_number_of_workers_restores_what_another_number_saved(seed: int, step: int) -> None:
    ds = random_pipeline(seed)
    it = iter(lanes(ds, 0))
    expected = [text_of(x) for x in it]
    step = min(step, len(expected))
    it = iter(lanes(ds, 0))
    for _ in range(step):
        next(it)
    for workers in (3, 0, "auto", 1):
        state = json.loads(json.dumps(it.get_state()))
        it.close()
        it = iter(lanes(ds, workers))
        it.set_state(state)
        assert json.loads(json.dumps(it.get_state())) == state
        if step < len(expected):
            assert text_of(next(it)) == expected[step]
            step += 1
    assert [text_of(x) for x in it] == expected[step:]
    it.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_iterator_goes_back_and_forth(workers: int) -> None:
    ds = R(50).shuffle(seed=1).filter(is_kept)
    it = iter(lanes(ds, workers))
    states, elements = [it.get_state()], []
    for element in it:
        elements.append(element)
        states.append(it.get_state())
    for step in (20, 3, 33, 0, len(elements)):
        it.set_state(copy.deepcopy(states[step]))
        assert it.get_state() == states[step]
        assert list(it) == elements[step:]
    repeated = X.RepeatIterDataset(lanes(ds, workers), 2)
    assert list(repeated) == elements * 2
    it.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_errors_come_in_their_turn(workers: int) -> None:
    ds = R(60).map(fails_at_37).to_iter_dataset()
    expected = run(iter(as_workers(ds)))
    assert "no 37" in str(expected)
    assert run(iter(lanes(ds, workers))) == expected


def slow(x: int) -> int:
    time.sleep(0.01)
    return x


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_comes_twice() -> None:
    ds = R(120).map(slow).filter(is_kept)
    expected = list(lanes(R(120).filter(is_kept), 0))
    it = iter(lanes(ds, 2))
    found = []
    for _ in range(3):
        found += [next(it) for _ in range(10)]
        pids = {pid for pid in descendants(os.getpid()) if is_running(pid)}
        workers = {pid for pid in pids if not descendants(pid) & pids}
        os.kill(max(workers), signal.SIGKILL)
    found += it
    it.close()
    assert found == expected


def test_the_number_of_workers_changes_while_they_run() -> None:
    ds = R(300).shuffle(seed=1).filter(is_kept)
    expected = run(iter(lanes(ds, 0)))
    it = iter(lanes(ds, "auto", max_workers=4))
    counts = set()

    def change(step: int) -> None:
        counts.add(it.worker_count)
        if step % 40 == 0:
            set_worker_count(it, 1 + step // 40 % LANES)

    assert run(it, change) == expected
    assert counts == {1, 2, 3, 4}


def test_fewer_lanes_than_workers_wanted_are_dealt_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dealt: list[int] = []
    assign = LaneWorkers._assign

    def counted(self: LaneWorkers) -> None:
        dealt.append(1)
        assign(self)

    monkeypatch.setattr(LaneWorkers, "_assign", counted)
    ds = R(400).to_iter_dataset(wg.ReadOptions(0, 0)).filter(lambda x: x % LANES == 0 or x < 8)
    with iter(lanes(ds, "auto", max_workers=4)) as it:
        found = [next(it) for _ in range(12)]  # The other lanes have ended.
        set_worker_count(it, 2)
        dealt.clear()
        found += it
    assert sorted(found) == sorted({*range(8), *range(0, 400, LANES)})
    assert len(dealt) <= 3


def test_a_number_of_workers_that_lanes_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match="num_workers=5 and lanes=4"):
        wg.MultiprocessingOptions(num_workers=5, lanes=4)
    with pytest.raises(ValueError, match="`lanes` has to be at least 1"):
        wg.MultiprocessingOptions(lanes=0)
    with (
        iter(lanes(R(40), "auto")) as it,
        pytest.raises(ValueError, match="from 1 to 4 workers, but got 5"),
    ):
        set_worker_count(it, 5)
    with (
        iter(lanes(R(40), 2)) as it,
        pytest.raises(ValueError, match="no workers whose number can change"),
    ):
        set_worker_count(it, 2)


def test_lanes_share_the_threads_of_one_process() -> None:
    def waits(x: int) -> int:
        time.sleep(0.002)
        return x

    before = threading.active_count()
    it = iter(lanes(R(2000).map(waits), 0, count=64))
    found = [next(it) for _ in range(400)]
    assert found == list(range(400))
    assert threading.active_count() - before <= 80
    it.close()


def test_batches_pass_through_shared_memory() -> None:
    ds = R(64).map(lambda x: np.full(5000, x)).to_iter_dataset().batch(2)
    expected = [batch[:, 0].tolist() for batch in lanes(ds, 0)]
    with iter(lanes(ds, 2)) as it:
        assert [batch[:, 0].tolist() for batch in it] == expected


def test_closed_and_dropped_iterators_leave_no_processes() -> None:
    before = {pid for pid in descendants(os.getpid()) if is_running(pid)}
    it = iter(lanes(R(1000), 3))
    next(it)
    it.close()
    with pytest.raises(ValueError, match="closed"):
        next(it)
    other = iter(lanes(R(1000), 3))
    next(other)
    del other, it
    deadline = time.monotonic() + 30
    while True:
        left = {pid for pid in descendants(os.getpid()) if is_running(pid)} - before
        if len(left) <= 1:  # The fork server stays.
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_descriptions_name_lanes_and_workers() -> None:
    assert "4 lanes, 2 workers" in repr(lanes(R(9), 2))
    assert "4 lanes, no workers" in repr(lanes(R(9), 0))
    assert "4 lanes, auto workers" in repr(lanes(R(9), "auto"))
    with iter(lanes(R(900).map(fails_at_37).filter(is_kept), 2)) as it:
        next(it)
        assert "lanes" in str(it.report())
