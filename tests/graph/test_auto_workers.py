"""Workers whose number is found out, or changed, while they run: nothing else changes."""

import functools
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.tools import END, R, Unreadable, X, eventually, fails_on, outcomes_and_states
from wholegrain._graph.auto_prefetch import AutoPrefetchIterator

_FEW = settings(max_examples=12)


def _auto(ds: Any, max_workers: int = 3, buffer_size: Any = 1, **more: Any) -> Any:
    options = wg.MultiprocessingOptions(
        num_workers="auto",
        per_worker_buffer_size=buffer_size,
        max_workers=max_workers,
        max_memory_bytes=1 << 32,
    )
    return ds.mp_prefetch(options, **more)


def _plain(element: Any) -> Any:
    return element.tolist() if isinstance(element, np.ndarray) else element


def _run(it: Any) -> list[tuple[Any, Any]]:
    """Return what each `next` gives, with the state after it, up to the end."""
    return [(_plain(element), state) for element, state in outcomes_and_states(it)]


# Pipelines.


def _add_noise(element: Any, rng: np.random.Generator) -> Any:
    return element + rng.integers(1000)


_STAGES: dict[str, Callable[[Any], Any]] = {
    "map": lambda ds: ds.map(lambda x: x * 2),
    "random_map": lambda ds: ds.random_map(_add_noise, seed=3),
    "map_with_index": lambda ds: ds.map_with_index(lambda i, x: x + 100 * i),
    "batch": lambda ds: ds.batch(3),
    "batch without the rest": lambda ds: ds.batch(2, drop_remainder=True),
    "seed": lambda ds: ds.seed(5),
    "limit": lambda ds: X.LimitIterDataset(ds, 9),
    "options": lambda ds: X.WithOptionsIterDataset(ds, X.DatasetOptions(min_shm_size=100)),
}


@st.composite
def _pipelines(draw: st.DrawFn) -> Any:
    ds = R(draw(st.integers(0, 40))).seed(draw(st.integers(0, 9)))
    for stage in draw(st.lists(st.sampled_from(["map", "random_map", "shuffle", "repeat"]))):
        if stage == "shuffle":
            ds = ds.shuffle()
        elif stage == "repeat":
            ds = ds.repeat(2) if len(ds) < 100 else ds
        else:
            ds = _STAGES[stage](ds)
    options = wg.ReadOptions(*draw(st.sampled_from([(0, 0), (1, 2), (16, 500)])))
    ds = ds.to_iter_dataset(options)
    has_batches = False
    for stage in draw(st.lists(st.sampled_from(sorted(_STAGES)), max_size=4)):
        # A short batch cannot be stacked with others.
        if not (has_batches and stage.startswith("batch")):
            ds = _STAGES[stage](ds)
        has_batches = has_batches or stage == "batch"
    return ds


@_FEW
@given(ds=_pipelines(), max_workers=st.integers(1, 3), buffer_size=st.sampled_from([1, 4, "auto"]))
def test_elements_order_and_states_are_those_without_workers(
    ds: Any, max_workers: int, buffer_size: Any
) -> None:
    with iter(_auto(ds, max_workers, buffer_size)) as it:
        assert _run(it) == _run(iter(ds))


@_FEW
@given(data=st.data())
def test_states_restore_with_and_without_workers(data: st.DataObject) -> None:
    ds = data.draw(_pipelines())
    expected = _run(iter(ds))
    step = data.draw(st.integers(0, len(expected) - 1))
    _, state = expected[step]
    rest = expected[step + 1 :] or expected[-1:]
    with iter(_auto(ds)) as it:
        it.set_state(state)
        assert it.get_state() == state
        assert _run(it) == rest
        it.set_state(state)  # While the workers run.
        assert _run(it) == rest


@settings(max_examples=5)
@given(step=st.integers(0, 30), workers=st.integers(1, 3), shuffles=st.booleans())
def test_states_move_between_auto_and_any_number_of_workers(
    step: int, workers: int, shuffles: bool
) -> None:
    ds = R(30).seed(1).shuffle() if shuffles else R(30)
    ds = ds.to_iter_dataset().random_map(_add_noise, seed=2)
    fixed = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))
    expected = list(ds)
    with iter(_auto(ds)) as auto_it, iter(fixed) as fixed_it:
        assert [next(auto_it) for _ in range(step)] == expected[:step]
        fixed_it.set_state(auto_it.get_state())
        assert list(fixed_it) == expected[step:]
        fixed_it.set_state(auto_it.get_state())
        for _ in range(min(3, 30 - step)):
            next(fixed_it)
        auto_it.set_state(fixed_it.get_state())
        assert list(auto_it) == expected[step + 3 :]


def test_a_state_of_batches_that_depended_on_the_number_of_workers_is_refused() -> None:
    ds = R(30).to_iter_dataset().batch(4)
    with iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))) as it:
        next(it)
        state = it.get_state()
    with (
        iter(_auto(ds)) as it,
        pytest.raises(ValueError, match=r"taken with 2 workers.*num_workers=2"),
    ):
        it.set_state(state)


def test_what_follows_the_workers_knows_nothing_of_them() -> None:
    ds = R(50).to_iter_dataset()

    def then(ds: Any) -> Any:
        return X.RepeatIterDataset(ds.filter(lambda x: x % 3).batch(4), num_epochs=2)

    with iter(then(_auto(ds))) as it:
        assert _run(it) == _run(iter(then(ds)))


def test_arrays_are_the_consumers_own_and_outlive_the_workers() -> None:
    ds = R(40).map(lambda x: np.full(5000, x)).to_iter_dataset()
    with iter(_auto(ds, max_workers=2)) as it:
        arrays = list(it)
    for number, array in enumerate(arrays):
        assert array.flags.writeable
        assert (array == number).all()


def test_elements_of_thousands_of_layouts_wait_for_their_turn() -> None:
    def pair(number: int) -> dict[str, Any]:
        left, right = number % 61, number // 61 % 61
        return {"left": np.full(left, number), "right": np.full(right, -number)}

    with iter(_auto(R(8000).map(pair).to_iter_dataset(), max_workers=2)) as it:
        for number in range(8000):
            if number % 1000 == 500:
                time.sleep(0.1)  # Elements arrive long before they are asked for.
            np.testing.assert_equal(next(it), pair(number))


# Errors.


@_FEW
@given(
    bad=st.sets(st.integers(0, 39), max_size=4),
    size=st.sampled_from([None, 1, 3]),
    at_map_level=st.booleans(),
)
def test_errors_stand_where_they_stand_without_workers(
    bad: set[int], size: int | None, at_map_level: bool
) -> None:
    ds = R(40)
    ds = ds.map(fails_on(*bad)).to_iter_dataset() if at_map_level else ds.to_iter_dataset()
    ds = ds if at_map_level else ds.map(fails_on(*bad))
    ds = ds if size is None else ds.batch(size)
    with iter(_auto(ds, max_workers=2)) as it:
        assert _run(it) == _run(iter(ds))


@_FEW
@given(missing=st.sets(st.integers(0, 39)), size=st.sampled_from([None, 4]))
def test_elements_that_turn_out_to_be_missing_are_left_out(
    missing: set[int], size: int | None
) -> None:
    ds = R(40).map(lambda x: None if x in missing else x).to_iter_dataset()
    ds = ds if size is None else ds.batch(size)
    with iter(_auto(ds, max_workers=2)) as it:
        assert _run(it) == _run(iter(ds))


class _EndsEarly:
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index >= 37:
            raise StopIteration
        return index


def test_a_source_may_end_before_its_length() -> None:
    ds = wg.MapDataset.source(_EndsEarly()).to_iter_dataset()
    with iter(_auto(ds)) as it:
        assert _run(it) == _run(iter(ds))


def test_an_error_while_a_worker_is_set_up_is_raised() -> None:
    def fail(index: int, count: int) -> None:
        raise Unreadable(f"worker {index} of {count}")

    with iter(_auto(R(5).to_iter_dataset(), worker_init_fn=fail)) as it:
        for _ in range(2):
            with pytest.raises(Unreadable, match="worker 0 of 3"):
                next(it)


# Pipelines that are refused.


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda ds: ds.filter(lambda x: x > 1), "FilterIterDataset"),
        (lambda ds: X.WindowShuffleIterDataset(ds, window_size=3, seed=1), "WindowShuffle"),
        (lambda ds: X.RebatchIterDataset(ds.batch(2), batch_size=3), "RebatchIterDataset"),
        (lambda ds: wg.IterDataset.mix([ds, ds]), "MixedIterDataset"),
        (lambda ds: X.RepeatIterDataset(ds), "RepeatIterDataset"),
        (lambda ds: ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)), "ProcessPrefetch"),
        (lambda ds: _auto(ds), "AutoPrefetch"),
    ],
)
def test_a_pipeline_whose_elements_cannot_be_located_is_refused(
    make: Callable[[Any], Any], names: str
) -> None:
    with pytest.raises(ValueError, match=f'num_workers="auto"(.|\n)*{names}(.|\n)*Call `mp_pref'):
        _auto(make(R(10).to_iter_dataset()))


def test_a_filter_on_a_map_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"missing after `filter`.*give the number of workers"):
        _auto(R(10).filter(lambda x: x > 1).to_iter_dataset())


def test_settings_that_do_not_go_together_are_refused() -> None:
    ds = R(10).to_iter_dataset()
    with pytest.raises(ValueError, match="sequential_slice"):
        _auto(ds, sequential_slice=True)
    with pytest.raises(ValueError, match=r"at least one element ready.*size=0"):
        _auto(ds, buffer_size=0)
    with pytest.raises(ValueError, match="max_workers"):
        _auto(ds, max_workers=0)
    with pytest.raises(TypeError, match=r'`num_workers` has to be .* "auto", but got \'many\''):
        wg.MultiprocessingOptions(num_workers="many")  # type: ignore[arg-type]
    options = wg.MultiprocessingOptions(num_workers=2, per_worker_buffer_size="auto")
    with pytest.raises(ValueError, match='needs num_workers="auto"'):
        ds.mp_prefetch(options)


def test_read_ahead_can_be_left_open() -> None:
    options = wg.ReadOptions(num_threads="auto", prefetch_buffer_size="auto")
    assert options.num_threads > 16
    assert options.prefetch_buffer_size > 500
    assert options == wg.ReadOptions(options.num_threads, options.prefetch_buffer_size)
    assert list(R(1000).to_iter_dataset(options)) == list(range(1000))
    with pytest.raises(ValueError, match="num_threads"):
        wg.ReadOptions(num_threads="many")  # type: ignore[arg-type]


# The number of workers.


def _pids(it: AutoPrefetchIterator[Any]) -> list[int]:
    pool = it._parent._pool
    assert pool is not None
    return [worker.connection.worker_pid or 0 for worker in pool.workers]


@_FEW
@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_the_number_of_workers_changes_nothing_but_itself(counts: list[int]) -> None:
    ds = R(600).map(lambda x: x + 1).to_iter_dataset().batch(2)
    expected = _run(iter(ds))
    found = []
    with iter(_auto(ds)) as it:
        for count in counts:
            it.set_worker_count(count)
            assert it.worker_count == count
            found += [(_plain(next(it)), it.get_state()) for _ in range(40)]
        it.set_worker_count(None)
        found += _run(it)
    assert found == expected


def test_workers_that_are_too_many_are_let_go() -> None:
    with iter(_auto(R(3000).to_iter_dataset())) as it:
        it.set_worker_count(3)
        next(it)
        assert len(_pids(it)) == 3
        it.set_worker_count(1)
        for _ in it:
            pass
        assert eventually(lambda: len(_pids(it)) == 1)


def test_there_is_at_least_one_worker() -> None:
    it = iter(_auto(R(3).to_iter_dataset()))
    with pytest.raises(ValueError, match="at least one worker, but got 0"):
        it.set_worker_count(0)
    it.close()
    with pytest.raises(ValueError, match="closed"):
        it.set_worker_count(2)


def _sleep(seconds: float, element: Any) -> Any:
    time.sleep(seconds)
    return element


def test_workers_are_added_while_the_consumer_waits() -> None:
    ds = R(2000).to_iter_dataset(wg.ReadOptions(0, 0)).map(functools.partial(_sleep, 0.005))
    with iter(_auto(ds)) as it:
        assert it.worker_count == 1
        for number, element in enumerate(it):
            assert element == number
            if it.worker_count == 3:
                break
        assert it.worker_count == 3


def _waits_for_another(sign: Path, element: int) -> int:
    """Make element 0 only when element 150 has been made."""
    if element == 150:
        sign.touch()
    assert element or eventually(sign.exists)
    return element


def test_a_slow_element_does_not_idle_the_other_worker(tmp_path: Path) -> None:
    make = functools.partial(_waits_for_another, tmp_path / "sign")
    with iter(_auto(R(200).map(make).to_iter_dataset(), max_workers=2)) as it:
        it.set_worker_count(2)
        assert list(it) == list(range(200))


# Deaths and ends.


@settings(max_examples=4)
@given(data=st.data())
def test_a_killed_worker_changes_nothing(data: st.DataObject) -> None:
    # Large elements, so that few of them are ready, and each kill hits other ones.
    ds = R(600).map(lambda x: np.full(50_000, x)).to_iter_dataset()
    kills = {data.draw(st.integers(start, start + 49)) for start in range(1, 600, 150)}
    with iter(_auto(ds)) as it:
        it.set_worker_count(2)
        for number in range(600):
            if number in kills:
                pid = data.draw(st.sampled_from(_pids(it)))
                if pid:
                    os.kill(pid, signal.SIGKILL)
            assert (next(it) == number).all()
            assert it.get_state() == {"next_index": number + 1}
        assert next(it, END) is END


def _dies_at(bad: int, element: int) -> int:
    if element == bad:
        os._exit(7)
    return element


def test_an_element_that_kills_its_worker_twice_is_an_error_at_its_place() -> None:
    ds = R(60).map(functools.partial(_dies_at, 20)).to_iter_dataset(wg.ReadOptions(0, 0))
    with iter(_auto(ds)) as it:
        it.set_worker_count(2)
        assert [next(it) for _ in range(20)] == list(range(20))
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"exit code 7.*element 20 "):
                next(it)
        assert it.get_state() == {"next_index": 20}
        it.set_state({"next_index": 21})
        assert list(it) == list(range(21, 60))


def _exits(index: int, count: int) -> None:
    os._exit(3)


def test_workers_that_cannot_start_are_an_error() -> None:
    with (
        iter(_auto(R(5).to_iter_dataset(), worker_init_fn=_exits)) as it,
        pytest.raises(RuntimeError, match=r"being started.*exit code 3"),
    ):
        next(it)


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def _started() -> Iterator[Any]:
    it: Any = iter(_auto(R(10_000).map(lambda x: np.full(100, x)).to_iter_dataset()))
    it.set_worker_count(2)
    for _ in range(10):
        next(it)
    assert eventually(lambda: next(it) is not None and all(_pids(it)))
    return it  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["close", "drop", "with"])
def test_no_process_is_left(how: str) -> None:
    it: Any = _started()
    pids = _pids(it)
    assert len(_alive(pids)) == 2
    if how == "close":
        it.close()
        it.close()
        with pytest.raises(ValueError, match="closed"):
            next(it)
    elif how == "with":
        with pytest.raises(Unreadable), it:
            raise Unreadable
    del it
    gc.collect()
    assert eventually(lambda: not _alive(pids))


def test_prefetch_starts_the_workers() -> None:
    with iter(_auto(R(5).to_iter_dataset())) as it:
        it.start_prefetch()
        assert len(_pids(it)) == 1
        assert list(it) == [0, 1, 2, 3, 4]
