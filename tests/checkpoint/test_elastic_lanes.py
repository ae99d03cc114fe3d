"""ElasticIterator with lanes: one stream of global batches for any number of hosts and workers."""

import json
import logging
import random
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.checkpoint.lane_pipelines import (
    LANES,
    Seen,
    as_pair,
    fails_at_1,
    fails_at_37,
    is_below_50,
    is_kept,
    random_pipeline,
)
from wholegrain._core import tree
from wholegrain._state.validate import WrongStateError
from wholegrain.checkpoint import CheckpointHandler, merge_states
from wholegrain.experimental import (
    ElasticIterator,
    InterleaveIterDataset,
    RepeatIterDataset,
    WindowShuffleIterDataset,
)
from wholegrain.sharding import ShardOptions, as_process

BATCH = 2 * LANES
R = wg.MapDataset.range


def hosts(ds: Any, count: int, workers: Any = 0, **arguments: Any) -> list[ElasticIterator]:
    """Return the iterators of all hosts."""
    options = wg.MultiprocessingOptions(num_workers=workers) if workers else None
    arguments = {"lanes": LANES, "steps": "count", **arguments}
    size = arguments.pop("batch", BATCH)
    return [
        ElasticIterator(
            ds, size, ShardOptions(host, count), multiprocessing_options=options, **arguments
        )
        for host in range(count)
    ]


def close(its: list[ElasticIterator]) -> None:
    for it in its:
        it.close()


def plain(batches: Any) -> Any:
    """Return the rows of all hosts, one after the other, as lists."""
    joined = tree.zip_leaves(np.concatenate, list(batches))
    return tree.map_leaves(lambda leaf: leaf.tolist(), joined)


def steps_of(its: list[ElasticIterator], most: int | None = None) -> list[Any]:
    """Return the next global batches. All hosts have to end after the same step."""
    found: list[Any] = []
    while most is None or len(found) < most:
        batches = [next(it, None) for it in its]
        if any(batch is None for batch in batches):
            assert all(batch is None for batch in batches)
            return found
        found.append(plain(batches))
    return found


def epochs_of(its: list[ElasticIterator], count: int) -> list[list[Any]]:
    found = []
    for _ in range(count):
        for it in its:
            iter(it)
        found.append(steps_of(its))
    return found


def restored(its: list[ElasticIterator], ds: Any, count: int, workers: Any, **more: Any) -> Any:
    """Kill all hosts, and return others that go on from their states."""
    states = [json.loads(json.dumps(it.get_state())) for it in its]
    close(its)
    random.shuffle(states)
    merged = merge_states(states)
    others = hosts(ds, count, workers, **more)
    for it in others:
        it.set_state(merged)
    return others


_places = st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([0, 0, 0, 1, 2, 3, "auto"]))


@settings(max_examples=max(6, settings().max_examples // 16))
@given(
    seed=st.integers(0, 10**6),
    places=st.lists(_places, min_size=4, max_size=4),
    at=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    remainder=st.sampled_from(["drop", "pad"]),
)
@example(seed=1, places=[(1, 2), (2, 3), (4, "auto"), (8, 1)], at=[1, 1, 1], remainder="pad")
def test_global_batches_depend_on_neither_hosts_nor_workers_nor_restarts(
    seed: int, places: list[tuple[int, Any]], at: list[int], remainder: Any
) -> None:
    ds = random_pipeline(seed)
    with tempfile.TemporaryDirectory() as folder:
        more = {"remainder": remainder, "count_cache": folder}
        expected = epochs_of(hosts(ds, 1, **more), 1)[0]
        assert len(expected) == hosts(ds, 1, **more)[0].steps_per_epoch
        _check_restarts(ds, expected, places, at, more)


def _check_restarts(
    ds: Any, expected: Any, places: list[tuple[int, Any]], at: list[int], more: dict[str, Any]
) -> None:
    its = hosts(ds, *places[0], **more)
    found: list[Any] = []
    for steps, place in zip(at, places[1:], strict=True):
        found += steps_of(its, min(steps, len(expected) - len(found)))  # Not into the next epoch.
        its = restored(its, ds, *place, **more)
    found += steps_of(its)
    close(its)
    assert found == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rows_of_a_step_are_those_of_each_lane_in_order(workers: int) -> None:
    ds = R(100).shuffle(seed=3).filter(is_kept)
    lanes = [list(ds[lane::LANES].to_iter_dataset()) for lane in range(LANES)]
    its = hosts(ds, 2, workers)
    expected = [
        [row for lane in lanes for row in lane[2 * step : 2 * step + 2]]
        for step in range(min(map(len, lanes)) // 2)
    ]
    assert steps_of(its) == expected
    close(its)


# Epochs.


@pytest.mark.parametrize(("count", "workers"), [(1, 0), (4, 0), (2, 1)])
def test_a_loop_is_an_epoch_and_the_next_loop_is_another_one(count: int, workers: int) -> None:
    ds = R(100).shuffle(seed=3).filter(is_kept)
    its = hosts(ds, count, workers, remainder="pad")
    assert [it.epoch for it in its] == [0] * count
    first, second, third = epochs_of(its, 3)
    assert [it.epoch for it in its] == [3] * count
    assert [it.step_in_epoch for it in its] == [0] * count
    assert first != second != third != first
    rows = [[x for batch, mask in epoch for x, ok in zip(batch, mask, strict=True) if ok]
            for epoch in (first, second, third)]  # fmt: skip
    for one in rows:
        assert sorted(one) == [x for x in range(100) if is_kept(x)]
    close(its)


def test_epochs_are_those_that_repeat_gives() -> None:
    ds = R(64).shuffle(seed=3)
    its = hosts(ds, 2, steps=None)
    repeated = [list(ds.repeat(3)[64 * epoch : 64 * epoch + 64]) for epoch in range(3)]
    for epoch, elements in zip(epochs_of(its, 3), repeated, strict=True):
        assert sorted(x for batch in epoch for x in batch) == sorted(elements)
        assert epoch[0][:2] == [elements[0], elements[LANES]]


def test_next_after_the_end_stays_at_the_end_until_another_loop_begins() -> None:
    (it,) = hosts(R(32), 1, steps=None)
    assert len(list(it)) == 2
    assert it.epoch == 1
    assert next(it, None) is None
    assert next(it, None) is None
    assert len(list(it)) == 2
    assert it.epoch == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_saved_at_any_step_of_any_epoch_goes_on_in_that_epoch(workers: int) -> None:
    ds = R(60).shuffle(seed=3).filter(is_kept)
    (it,) = hosts(ds, 1, workers, remainder="pad")
    expected, states = [], []
    for epoch in range(2):
        for step, (batch, mask) in enumerate(it):
            assert (it.epoch, it.step_in_epoch) == (epoch, step + 1)
            expected.append((epoch, batch.tolist(), mask.tolist()))
            states.append(json.loads(json.dumps(it.get_state())))
    close([it])
    for taken, state in enumerate(states[:: 1 if workers == 0 else 3]):
        taken *= 1 if workers == 0 else 3
        (other,) = hosts(ds, 1, workers, remainder="pad")
        other.set_state(state)
        found = []
        for epoch in range(other.epoch, 2):
            found += [(epoch, batch.tolist(), mask.tolist()) for batch, mask in other]
        assert found == expected[taken + 1 :]
        close([other])


def test_a_state_taken_after_the_end_is_the_beginning_of_the_next_epoch() -> None:
    ds = R(64).shuffle(seed=3)
    its = hosts(ds, 2, steps=None)
    _, second = epochs_of(its, 1), None
    its = restored(its, ds, 4, 0, steps=None)
    assert [it.epoch for it in its] == [1] * 4
    second = steps_of(its)
    assert second == epochs_of(hosts(ds, 1, steps=None), 2)[1]


@pytest.mark.parametrize(("length", "drop", "pad"), [(0, 0, 0), (3, 0, 1), (16, 1, 1), (37, 2, 3)])
def test_known_lengths_need_no_counting(length: int, drop: int, pad: int) -> None:
    for count in (1, 4):
        assert [it.steps_per_epoch for it in hosts(R(length), count, steps=None)] == [drop] * count
        its = hosts(R(length), count, steps=None, remainder="pad")
        assert [it.steps_per_epoch for it in its] == [pad] * count
        batches = steps_of(its)
        assert len(batches) == pad
        rows = [x for xs, mask in batches for x, ok in zip(xs, mask, strict=True) if ok]
        assert sorted(rows) == list(range(length))


def test_padding_repeats_the_last_row_of_the_same_lane() -> None:
    (it,) = hosts(R(19), 1, steps=None, remainder="pad")
    (_, mask), (second, later) = it
    assert mask.all()
    assert second.tolist() == [16, 16, 17, 17, 18, 18, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15]
    assert later.tolist() == [True, False] * 3 + [False] * 10


@pytest.mark.parametrize(("rows", "workers"), [(1, 0), (2, 0), (3, 0), (2, 2)])
def test_padding_is_the_last_row_after_a_restore_at_any_step_too(rows: int, workers: int) -> None:
    length = 25 - 2 * workers
    more: dict[str, Any] = {"steps": 8 // rows, "remainder": "pad", "batch": rows * LANES}
    ds = R(length).filter(is_below_50).map(as_pair)
    lanes = [list(range(length))[lane::LANES] for lane in range(LANES)]
    (it,) = hosts(ds, 1, workers, **more)
    expected, states = [], [it.get_state()]
    for step, element in enumerate(it):
        wanted = [lane[min(n, len(lane) - 1)] for lane in lanes
                  for n in range(rows * step, rows * step + rows)]  # fmt: skip
        assert element["x"].tolist() == [[x, -x] for x in wanted]
        expected.append(plain([element]))
        states.append(it.get_state())
    close([it])
    for step, state in enumerate(states[:-1]):
        if workers == 0 or step == 3:
            its = hosts(ds, 1 + step % 2, workers, **more)
            for other in its:
                other.set_state(json.loads(json.dumps(state)))
            assert steps_of(its) == expected[step:]
            close(its)


def test_a_lane_without_elements_is_padded_with_the_first_row_of_the_first_that_has_some() -> None:
    for count in (1, 4):
        its = hosts(R(90, 93).filter(is_kept), count, remainder="pad", steps="count")
        assert steps_of(its) == [
            (
                [91] * 2 + [91, 91] + [92, 92] + [91] * 10,
                [False] * 2 + [True, False] * 2 + [False] * 10,
            )
        ]


def test_a_state_taken_without_padding_is_padded_with_the_last_row() -> None:
    (it,) = hosts(R(19), 1, steps=1)
    list(it)
    it.set_epoch(0)
    next(it)
    (other,) = hosts(R(19), 1, steps=3, remainder="pad")
    other.set_state(it.get_state())
    batch, mask = next(other)
    assert batch.tolist()[6:8] == [11, 11]
    assert not mask[6:].any()


def test_dicts_have_the_mask_as_a_key() -> None:
    ds = R(9).map(lambda x: {"x": x})
    (it,) = hosts(ds, 1, steps=None, remainder="pad", batch=LANES)
    first, second = it
    assert set(first) == {"x", "mask"}
    assert second["mask"].tolist() == [True] + [False] * 7
    (it,) = hosts(ds.map(lambda e: {"mask": e["x"]}), 1, steps=None, remainder="pad")
    with pytest.raises(ValueError, match="have that key already"):
        next(it)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_a_number_of_steps_is_a_budget(remainder: Any) -> None:
    ds = R(100).filter(is_kept)
    its = hosts(ds, 2, steps=2, remainder=remainder)
    first, second = epochs_of(its, 2)
    assert len(first) == len(second) == 2
    padded = epochs_of(hosts(ds, 2, steps=9, remainder="pad"), 1)[0]
    assert len(padded) == 9
    assert not any(padded[8][1])


def test_a_budget_that_the_data_cannot_fill_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 steps of 2, but got steps=4"):
        hosts(R(50), 2, steps=4)
    its = hosts(R(50).filter(is_kept), 2, steps=4)
    with pytest.raises(ValueError, match=r'Lane . has ended in step . of 4.*remainder="pad"'):
        steps_of(its)


def test_a_pipeline_without_end_needs_no_steps() -> None:
    for ds in (R(10).repeat().filter(is_kept), RepeatIterDataset(R(10).to_iter_dataset())):
        (first, second) = (hosts(ds, count, steps=None) for count in (2, 8))
        assert first[0].steps_per_epoch is None
        assert steps_of(first, 20) == steps_of(second, 20)
        with pytest.raises(ValueError, match="without end"):
            hosts(ds, 1, steps="count")


def test_hosts_that_cannot_know_their_end_are_refused_but_one_host_just_ends() -> None:
    ds = R(100).filter(is_kept)
    with pytest.raises(ValueError, match='steps="count"'):
        hosts(ds, 2, steps=None)
    for remainder in ("drop", "pad"):
        (alone,) = hosts(ds, 1, steps=None, remainder=remainder)
        assert alone.steps_per_epoch is None
        expected = epochs_of(hosts(ds, 4, remainder=remainder), 2)
        assert epochs_of([alone], 2) == expected


# Counting.


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_counted_is_kept_while_the_pipeline_is_the_same(
    workers: int, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"

    seen, folder = Seen(calls), tmp_path / "counts"
    ds = R(100).filter(seen)
    (it,) = hosts(ds, 1, workers, count_cache=folder)
    assert it.steps_per_epoch == 4
    assert len(calls.read_text()) == 100
    assert len(list(folder.iterdir())) == 1
    (again,) = hosts(ds, 1, workers, count_cache=str(folder))
    assert again.steps_per_epoch == 4
    assert len(calls.read_text()) == 100
    (longer,) = hosts(R(200).filter(seen), 1, workers, count_cache=folder)
    assert longer.steps_per_epoch == 8
    assert len(calls.read_text()) == 300
    assert len(list(folder.iterdir())) == 2


def test_a_damaged_count_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ds = R(100).filter(is_kept)
    assert hosts(ds, 1, count_cache=tmp_path)[0].steps_per_epoch == 4
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    with caplog.at_level(logging.WARNING):
        assert hosts(ds, 1, count_cache=tmp_path)[0].steps_per_epoch == 4
    assert "damaged" in caplog.text
    assert json.loads(file.read_text())["fewest"] >= 6


def test_a_checkpoint_holds_what_was_counted() -> None:
    seen = Counter[int]()

    def counts(x: int) -> bool:
        seen[x] += 1
        return is_kept(x)

    ds = R(100).filter(counts)
    (it,) = hosts(ds, 1)
    next(it)
    seen.clear()
    (other,) = restored([it], ds, 1, 0)
    assert other.steps_per_epoch == 4
    assert not seen


# Errors.


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_takes_one_step_on_its_host_and_the_hosts_stay_in_step(workers: int) -> None:
    expected = steps_of(hosts(R(100), 2, steps=None))
    first, second = hosts(R(100).map(fails_at_37).to_iter_dataset(), 2, workers, steps=None)
    found: list[Any] = []
    for step in range(first.steps_per_epoch or 0):
        if step == 2:  # 37 is the fifth element of lane 5.
            with pytest.raises(RuntimeError, match="no 37"):
                next(second)
            assert second.step_in_epoch == 3
            second.set_state(json.loads(json.dumps(second.get_state())))
            found.append(next(first).tolist())
        else:
            found.append(plain([next(first), next(second)]))
    assert [batch[:8] for batch in found] == [batch[:8] for batch in expected]
    others = [batch[8:] for step, batch in enumerate(found) if step != 2]
    for ours, theirs in zip(others, [e[8:] for n, e in enumerate(expected) if n != 2], strict=True):
        assert ours[:2] + ours[4:] == theirs[:2] + theirs[4:]  # All lanes but the one that failed.
    close([first, second])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lanes": 6}, "lanes=6 is not a multiple of shard_count=4"),
        ({"lanes": 0}, "at least 1"),
        ({"batch": 20}, "global_batch_size=20 is not a multiple of lanes=8"),
        ({"batch": 0}, "global_batch_size=0 is not a multiple"),
        ({"steps": 0}, "at least 1"),
        ({"remainder": "wrap"}, '"drop" or "pad", but got \'wrap\''),
        ({"steps": None, "count_cache": "x"}, 'needs steps="count"'),
        ({"lanes": None}, "need `lanes`"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hosts(R(100), 4, **arguments)


def test_lanes_in_two_places_have_to_agree() -> None:
    options = wg.MultiprocessingOptions(num_workers=2, lanes=4)
    with pytest.raises(ValueError, match=r"lanes=8, but .* has lanes=4"):
        ElasticIterator(R(9), 8, ShardOptions(0, 1), lanes=8, multiprocessing_options=options)


def test_states_that_do_not_fit_are_refused_and_nothing_moves() -> None:
    ds = R(200)
    its = hosts(ds, 2, steps=None)
    steps_of(its, 3)
    states = [it.get_state() for it in its]
    (other,) = hosts(ds, 1, steps=None)
    expected = next(other).tolist()
    (other,) = hosts(ds, 1, steps=None)
    with pytest.raises(ValueError, match=r"no lane 4: of 8 lanes it has 0-3, and .* 0-7"):
        other.set_state(states[0])
    with pytest.raises(ValueError, match="4-7 are missing"):
        merge_states(states[:1])
    steps_of(its[:1], 1)
    with pytest.raises(ValueError, match="not taken together"):
        merge_states([its[0].get_state(), states[1]])
    moved = {**states[1], "lane_states": {**states[1]["lane_states"], "0": {"next_index": 1}}}
    with pytest.raises(ValueError, match="Two of the states have lane 0"):
        merge_states([states[0], moved])
    with pytest.raises(ValueError, match="no states to merge"):
        merge_states([])
    with pytest.raises(ValueError, match="has no lanes"):
        other.set_state({"global_next_index": 4})
    merged = merge_states(states)
    (four,) = hosts(ds, 1, lanes=4, steps=None)
    with pytest.raises(ValueError, match="taken with 8 lanes, but there are 4 here"):
        four.set_state(merged)
    (larger,) = hosts(ds, 1, batch=4 * LANES, steps=None)
    with pytest.raises(ValueError, match="no whole number of steps with 4 elements of each lane"):
        larger.set_state(merged)
    bad = {**merged, "lane_states": {**merged["lane_states"], "7": {"next_index": -1}}}
    with pytest.raises(ValueError, match="Cannot go to the element at -1"):
        other.set_state(bad)
    assert next(other).tolist() == expected


def test_another_batch_size_goes_on_where_the_steps_are_whole() -> None:
    ds = R(200).shuffle(seed=1)
    (it,) = hosts(ds, 1, steps=None)
    rows = [row for batch in steps_of([it], 4) for row in batch]
    (larger,) = restored([it], ds, 1, 0, batch=4 * LANES, steps=None)
    assert larger.step_in_epoch == 2
    rows += [row for batch in steps_of([larger]) for row in batch]
    assert len(set(rows)) == len(rows) == 192


# Files.


def save(its: list[ElasticIterator], folder: Path) -> None:
    folder.mkdir()
    for process, it in enumerate(its):
        with as_process(process, len(its)):
            CheckpointHandler().save(folder, it)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_of_any_number_of_processes_are_restored(tmp_path: Path, workers: int) -> None:
    ds = R(300).shuffle(seed=1).filter(is_kept)
    expected = epochs_of(hosts(ds, 1), 1)[0]
    its = hosts(ds, 2)
    found: list[Any] = []
    for number, count in enumerate([4, 1, 8, 2] if not workers else [1, 4]):
        found += steps_of(its, 1)
        save(its, tmp_path / str(number))
        close(its)
        its = hosts(ds, count, workers, count_cache=tmp_path / "counts")
        for process, it in enumerate(its):
            with as_process(process, count):
                CheckpointHandler().restore(tmp_path / str(number), it)
    found += steps_of(its)
    close(its)
    assert found == expected


def test_a_process_may_have_other_lanes_than_its_number_says(tmp_path: Path) -> None:
    its = hosts(R(300), 2, steps=None)
    steps_of(its, 2)
    expected = [it.get_state() for it in its]
    save(its[::-1], tmp_path / "swapped")
    others = hosts(R(300), 2, steps=None)
    for process, it in enumerate(others):
        with as_process(process, 2):
            CheckpointHandler().restore(tmp_path / "swapped", it)
    assert [it.get_state() for it in others] == expected


def test_missing_and_mixed_files_are_named(tmp_path: Path) -> None:
    its = hosts(R(300), 2, steps=None)
    save(its, tmp_path / "a")
    (tmp_path / "a" / "process_1-of-2.json").unlink()
    (alone,) = hosts(R(300), 1, steps=None)
    with pytest.raises(ValueError, match=r"process_1-of-2.json does not exist, so lanes are miss"):
        CheckpointHandler().restore(tmp_path / "a", alone)
    with as_process(0, 1):
        CheckpointHandler().save(tmp_path / "a", alone)
    with pytest.raises(ValueError, match="states of 1 and of 2 processes"):
        CheckpointHandler().restore(tmp_path / "a", alone)
    with pytest.raises(ValueError, match="There is no iterator state"):
        CheckpointHandler().restore(tmp_path, alone)


def test_another_pipeline_is_noticed(tmp_path: Path) -> None:
    its = hosts(R(300).shuffle(seed=1), 2, steps=None)
    save(its, tmp_path / "a")
    (other,) = hosts(R(300).shuffle(seed=2), 1, steps=None)
    with pytest.raises(ValueError, match="another pipeline"):
        CheckpointHandler().restore(tmp_path / "a", other)


# Other behaviour.


def test_transformations_read_an_epoch_at_a_time() -> None:
    (it,) = hosts(R(64).shuffle(seed=1), 1, steps=None)
    ds = it.map(lambda batch: batch.sum())
    first, second = [int(x) for x in ds], [int(x) for x in ds]
    assert sum(first) == sum(second) == sum(range(64))
    assert first != second


def test_closed_iterators_say_so() -> None:
    for workers in (0, 2):
        (it,) = hosts(R(64), 1, workers, steps=None)
        next(it)
        it.close()
        with pytest.raises(ValueError, match="closed"):
            next(it)
        it.close()


def test_without_lanes_there_are_no_epochs() -> None:
    it = ElasticIterator(R(9), 3, ShardOptions(0, 1))
    assert not it.has_lane_states
    with pytest.raises(AttributeError, match="give it `lanes`"):
        _ = it.epoch


# Epochs and counts depend on all of the pipeline.


class Divides:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, x: int) -> bool:
        return x % self.by == 0


def test_a_count_is_not_that_of_a_function_with_another_attribute_or_of_other_data(
    tmp_path: Path,
) -> None:
    def count(ds: Any) -> Any:
        return hosts(ds, 1, batch=LANES, count_cache=tmp_path)[0].steps_per_epoch

    assert count(R(960).filter(Divides(60))) == 0
    assert count(R(960).filter(Divides(1))) == 960 // LANES
    data = np.arange(960)
    assert count(wg.MapDataset.source(data).filter(Divides(2))) == 0
    assert count(wg.MapDataset.source(data * 2).filter(Divides(2))) == 960 // LANES
    some = len(list(tmp_path.iterdir()))
    assert count(wg.MapDataset.source(data * 2).filter(Divides(2))) == 960 // LANES
    assert len(list(tmp_path.iterdir())) == some


def test_a_pipeline_that_cannot_be_pickled_is_counted_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = threading.Lock()

    def locked(x: int) -> bool:
        with lock:
            return is_kept(x)

    (it,) = hosts(R(100).filter(locked), 1, count_cache=tmp_path)
    with caplog.at_level(logging.WARNING):
        assert it.steps_per_epoch == 4
    assert "cannot be pickled" in caplog.text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("interleaved", [False, True])
def test_epochs_of_a_pipeline_without_end_follow_each_other(
    interleaved: bool, workers: int
) -> None:
    ds: Any = R(1000).shuffle(seed=1).repeat()
    if interleaved:
        parts = [ds.map(lambda x, n=n: 10000 * n + x).to_iter_dataset() for n in range(LANES)]
        ds = InterleaveIterDataset(parts, cycle_length=2)
    (straight,) = hosts(ds, 1, workers, steps=None)
    expected = steps_of([straight], 9)
    (it,) = hosts(ds, 1, workers, steps=3)
    assert epochs_of([it], 1) == [expected[:3]]
    assert (it.epoch, it.step_in_epoch) == (1, 0)
    (other,) = hosts(ds, 1, steps=3)
    other.set_state(json.loads(json.dumps(it.get_state())))
    assert epochs_of([it], 2) == [expected[3:6], expected[6:9]]
    assert epochs_of([other], 2) == [expected[3:6], expected[6:9]]
    close([straight, it, other])


def draw(x: int, rng: np.random.Generator) -> int:
    return int(rng.integers(10**6))


@pytest.mark.parametrize(
    "ds",
    [
        R(48).to_iter_dataset().seed(3).random_map(draw),
        WindowShuffleIterDataset(R(48).to_iter_dataset(), window_size=4, seed=1),
        InterleaveIterDataset(
            [R(6).to_iter_dataset().seed(n).random_map(draw) for n in range(LANES)], cycle_length=1
        ),
    ],
)
def test_random_stages_of_an_iter_dataset_differ_from_epoch_to_epoch(ds: Any) -> None:
    (it,) = hosts(ds, 1)
    first, second = epochs_of([it], 2)
    assert first != second
    assert len(first) == len(second)
    (again,) = hosts(ds, 1)
    assert epochs_of([again], 2) == [first, second]


# Padding.


def test_padding_without_any_element_is_an_error() -> None:
    (it,) = hosts(R(0), 1, remainder="pad", steps=2)
    with pytest.raises(ValueError, match="no row to pad with"):
        next(it)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_lane_whose_first_element_fails_is_padded_with_another(workers: int) -> None:
    ds = R(9).map(fails_at_1)
    arguments: dict[str, Any] = {"lanes": 2, "batch": 2, "remainder": "pad", "steps": None}
    (it,) = hosts(ds, 1, workers, **arguments)
    with pytest.raises(ValueError, match="fails at 1"):
        next(it)
    states, found = [it.get_state()], []
    for batch, mask in it:
        found.append((batch.tolist(), mask.tolist()))
        states.append(it.get_state())
    whole = [True, True]
    assert found == [([n, n + 1], whole) for n in (2, 4, 6)] + [([8, 7], [True, False])]
    for step, state in list(enumerate(states[:-1]))[:: 1 + workers]:
        it.set_state(state)
        assert [(batch.tolist(), mask.tolist()) for batch, mask in it] == found[step:]
    close([it])


# States.


def test_states_are_checked_downstream_too() -> None:
    (it,) = hosts(R(96), 1)
    next(it)
    state = it.get_state()
    (other,) = hosts(R(96), 1, lanes=2 * LANES)
    for broken in ({**state, "counted": [1]}, {**state, "counted": [1, "x"]}):
        with pytest.raises(WrongStateError, match="not two numbers"):
            it.set_state(broken)
    with pytest.raises(WrongStateError, match=f"taken with {LANES} lanes"):
        iter(other.map(lambda batch: batch)).check_state(state)


def test_an_elastic_iterator_has_a_state_dict() -> None:
    (it,) = hosts(R(96), 1)
    next(it)
    (other,) = hosts(R(96), 1)
    other.load_state_dict(it.state_dict())
    assert steps_of([other]) == steps_of([it])
