"""`on_error`: failed elements are left out or replaced, at the same places for any workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.failing import (
    Broken,
    BrokenBulk,
    FailsFor,
    minus_one,
    plain,
    until_error,
    with_workers,
)
from wholegrain.experimental import (
    InterleaveIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
)

N = 400
BROKEN = frozenset({3, 57, 58, 59, 200, 399})  # More than 1 %.
UNUSABLE = (0, 60, 301)
BAD = BROKEN | {*UNUSABLE}
WORKERS = (0, 2, "auto")


def pipeline(policy: Any, kind: Any = Broken, **limits: Any) -> Any:
    ds = wg.MapDataset.source(kind(N, BROKEN)).map(FailsFor(*UNUSABLE))
    return ds.on_error(policy, **limits)


@pytest.mark.parametrize("kind", [Broken, BrokenBulk])
def test_skip_reads_as_none_and_leaves_every_other_element_in_its_place(kind: Any) -> None:
    ds = pipeline("skip", kind).seed(4).shuffle()
    whole = wg.MapDataset.range(N).seed(4).shuffle()
    expected = [None if x in BAD else x for x in whole]
    assert [ds[index] for index in range(N)] == expected
    assert list(ds) == [x for x in expected if x is not None]


def test_replace_takes_the_same_good_element_in_every_read() -> None:
    ds = pipeline("replace")
    once = [ds[index] for index in range(N)]
    assert all(once[index] == index for index in range(N) if index not in BAD)
    assert all(once[index] not in BAD for index in BAD)
    assert len({once[index] for index in BAD}) > len(BAD) // 2, "they are spread"
    assert list(ds) == once
    assert plain(ds.batch(7)) == [once[start : start + 7] for start in range(0, N, 7)]
    again = [pipeline("replace", BrokenBulk)[index] for index in range(N)]
    assert again == once


def test_a_function_says_what_takes_the_place() -> None:
    expected = [-1 - x if x in BAD else x for x in range(N)]
    assert list(pipeline(minus_one)) == expected
    assert plain(pipeline(minus_one).batch(8)) == [
        expected[start : start + 8] for start in range(0, N, 8)
    ]


def test_a_function_that_returns_none_leaves_the_element_out() -> None:
    ds = pipeline(lambda error, record: None)
    assert list(ds) == [x for x in range(N) if x not in BAD]


@pytest.mark.parametrize(
    ("policy", "workers"),
    [("skip", 2), ("skip", "auto"), ("replace", 2), ("replace", "auto"), (minus_one, 2)],
)
def test_elements_errors_and_restores_are_those_of_a_run_without_workers(
    policy: Any, workers: Any
) -> None:
    def make(workers: Any) -> Any:
        ds = pipeline(policy).seed(1).shuffle().map(str).to_iter_dataset().map(len)
        return with_workers(ds, workers)

    model = iter(make(0))
    expected = list(model)
    it = iter(make(workers))
    states, got = [it.get_state()], []
    for element in it:
        got.append(element)
        states.append(it.get_state())
    assert got == expected
    assert it.errors() == model.errors()
    assert {record.index for record in it.errors()} == BAD
    for at in (57, 130):
        other = iter(make(workers))
        other.set_state(json.loads(json.dumps(states[at])))
        assert list(other) == expected[at:]
        assert other.errors() == it.errors()[len(it.errors()) - len(other.errors()) :]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_the_budget_ends_every_run_at_the_same_element(policy: Any, workers: Any) -> None:
    for budget in (0, len(BAD) - 1):
        ds = pipeline(policy, budget=budget, consecutive=None).to_iter_dataset()
        elements, error = until_error(iter(with_workers(ds, workers)))
        last = sorted(BAD)[budget]
        good = [x for x in range(last) if x not in BAD]
        whole = pipeline("replace")
        expected = good if policy == "skip" else [whole[index] for index in range(last)]
        assert elements == expected
        assert isinstance(error, wg.TooManyErrorsError)
        assert [record.index for record in error.errors] == sorted(BAD)[: budget + 1]
        assert f"budget={budget} tolerates {budget}" in str(error)
    exact = pipeline(policy, budget=len(BAD), consecutive=None).to_iter_dataset()
    assert until_error(iter(with_workers(exact, workers)))[1] is None


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_failures_in_a_row_end_every_run_at_the_same_element(policy: Any, workers: Any) -> None:
    # 57 to 60 are the longest row of failures.
    ds = pipeline(policy, consecutive=3).to_iter_dataset()
    elements, error = until_error(iter(with_workers(ds, workers)))
    assert len(elements) == (60 if policy == "replace" else 60 - 5)
    assert isinstance(error, wg.TooManyErrorsError)
    assert "4 elements in a row" in str(error)
    fine = pipeline(policy, consecutive=4).to_iter_dataset()
    assert until_error(iter(with_workers(fine, workers)))[1] is None


@pytest.mark.parametrize("workers", WORKERS)
def test_counts_go_on_after_a_restore(workers: Any) -> None:
    ds = with_workers(pipeline("skip", budget=6, consecutive=4).to_iter_dataset(), workers)
    it = iter(ds)
    before = [next(it) for _ in range(56)]
    assert before[-1] == 61  # Six have failed by now, the last four in a row.
    other = iter(ds)
    other.set_state(json.loads(json.dumps(it.get_state())))
    elements, error = until_error(other)
    assert before + elements == [x for x in range(200) if x not in BAD]
    assert "7 elements have failed" in str(error)


def test_a_share_is_one_of_each_epoch() -> None:
    ds = pipeline("skip", budget=len(BAD) / N).repeat(3)
    assert len(list(ds)) == 3 * (N - len(BAD))
    elements, error = until_error(iter(pipeline("skip", budget=(len(BAD) - 1) / N).repeat(3)))
    assert len(elements) == 399 - len(BAD) + 1
    assert isinstance(error, wg.TooManyErrorsError)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_in_workers_leave_failed_rows_out_and_count_them(workers: int) -> None:
    ds = pipeline("skip").to_iter_dataset().batch(8)
    it = iter(with_workers(ds, workers))
    rows = sorted(np.concatenate(list(it)).tolist())
    assert rows == [x for x in range(N) if x not in BAD]
    assert {record.index for record in it.errors()} == BAD
    limited = pipeline("skip", budget=len(BAD) - 1).to_iter_dataset().batch(8)
    assert until_error(iter(with_workers(limited, workers)))[1] is not None


def test_auto_workers_batch_the_same_rows() -> None:
    ds = pipeline("skip").to_iter_dataset().batch(8)
    it = iter(with_workers(ds, "auto"))
    assert plain(it) == plain(ds)
    assert len(it.errors()) == len(BAD)


@settings(max_examples=10)
@given(
    broken=st.frozensets(st.integers(0, 59)),
    policy=st.sampled_from(["skip", "replace"]),
    seed=st.integers(0, 99),
    stop=st.integers(0, 60),
    size=st.integers(1, 7),
)
def test_random_failures_equal_the_model_after_a_restore_anywhere(
    broken: frozenset[int], policy: Any, seed: int, stop: int, size: int
) -> None:
    if len(broken) > 50:
        return
    ds = wg.MapDataset.source(Broken(60, broken)).seed(seed).shuffle()
    ds = ds.on_error(policy, budget=None, consecutive=None).map(lambda x: x + 1)
    if policy == "replace":
        expected = [ds[index] for index in range(60)]
        clean = wg.MapDataset.range(60).seed(seed).shuffle()
        assert all(e == x + 1 for e, x in zip(expected, clean, strict=True) if x not in broken)
        batches = plain(ds.batch(size).to_iter_dataset())
        assert [row for batch in batches for row in batch] == expected
    clean = wg.MapDataset.range(60).seed(seed).shuffle()
    model = [x + 1 for x in clean if x not in broken]
    if policy == "replace":
        model = expected
    for whole in (
        ds.to_iter_dataset().filter(lambda x: x % 3 > 0).batch(size),
        WindowShuffleIterDataset(ds.to_iter_dataset(), window_size=5, seed=1),
        ThreadPrefetchIterDataset(ds.to_iter_dataset(), prefetch_buffer_size=3).batch(size),
    ):
        it = iter(whole)
        got, states = [], [it.get_state()]
        for element in it:
            got.append(np.asarray(element).tolist())
            states.append(it.get_state())
        flat = [row for batch in got for row in (batch if isinstance(batch, list) else [batch])]
        kept = (
            [x for x in model if x % 3]
            if whole.parents[0] and "Filter" in str(whole.parents[0])
            else model
        )
        assert sorted(flat) == sorted(kept)
        assert len(it.errors()) == len(broken)
        at = min(stop, len(got))
        other = iter(whole)
        other.set_state(states[at])
        assert plain(other) == got[at:]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_iter_dataset_skips_failures_of_all_stages_upstream(workers: Any) -> None:
    ds = wg.MapDataset.source(Broken(N, BROKEN)).to_iter_dataset().map(FailsFor(*UNUSABLE))
    ds = with_workers(ds.on_error("skip"), workers)
    it = iter(ds)
    states, got = [it.get_state()], []
    for element in it:
        got.append(element)
        states.append(it.get_state())
    assert got == [x for x in range(N) if x not in BAD]
    assert len(it.errors()) == len(BAD)
    assert {record.index for record in it.errors()} >= BROKEN
    other = iter(ds)
    other.set_state(json.loads(json.dumps(states[100])))
    assert list(other) == got[100:]
    limited = wg.MapDataset.source(Broken(N, BROKEN)).to_iter_dataset().on_error("skip", budget=2)
    elements, error = until_error(iter(with_workers(limited, workers)))
    assert elements == [x for x in range(58) if x not in BROKEN]
    assert isinstance(error, wg.TooManyErrorsError)


def test_a_function_of_an_iter_dataset_gives_a_substitute() -> None:
    ds = wg.MapDataset.range(10).to_iter_dataset().map(FailsFor(4)).on_error(lambda e, r: -1)
    assert list(ds) == [0, 1, 2, 3, -1, 5, 6, 7, 8, 9]


def test_an_iterator_that_cannot_go_on_is_not_taken_for_the_end_of_the_data() -> None:
    class Ending(wg.DatasetIterator[int]):
        count = 0

        def __next__(self) -> int:
            self.count += 1
            if self.count == 3:
                raise OSError("lost")
            if self.count > 3:
                raise StopIteration
            return self.count

        def get_state(self) -> Any:
            return {"count": self.count}

        def set_state(self, state: Any) -> None:
            self.count = state["count"]

    class Source(wg.IterDataset[int]):
        def __iter__(self) -> Any:
            return Ending()

    elements, error = until_error(iter(Source().on_error("skip")))
    assert elements == [1, 2]
    assert isinstance(error, OSError)
    assert "cannot go on" in "".join(error.__notes__)


@pytest.mark.parametrize("error", [NameError, ImportError, MemoryError, NotImplementedError])
@pytest.mark.parametrize("is_map", [True, False])
def test_errors_of_the_program_are_raised(error: type[Exception], is_map: bool) -> None:
    def fail(element: int) -> int:
        raise error("mine")

    ds = wg.MapDataset.range(5)
    whole: Any = ds.map(fail).on_error("skip")
    if not is_map:
        whole = ds.to_iter_dataset().map(fail).on_error("skip")
    with pytest.raises(error, match="mine"):
        next(iter(whole))


def test_states_without_failures_are_those_without_on_error() -> None:
    it = iter(wg.MapDataset.range(9).on_error("skip").to_iter_dataset().batch(2).on_error("skip"))
    next(it)
    assert it.get_state() == {"next_index": 2}


def test_the_log_has_each_failure_once(tmp_path: Path) -> None:
    log = tmp_path / "runs" / "bad.jsonl"
    ds = pipeline("skip", log=log)
    list(ds)
    it = iter(ds)
    list(it)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["index"] for entry in entries] == sorted(BAD)
    assert entries[0] == it.errors()[0].as_dict()
    assert entries[1]["error"] == "OSError: record 3 is broken"
    assert entries[1]["epoch"] == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"policy": "ignore"}, "takes"),
        ({"policy": "skip", "budget": -1}, "budget"),
        ({"policy": "skip", "budget": "1%"}, "budget"),
        ({"policy": "skip", "budget": 1.5}, "at most 1.0"),
        ({"policy": "skip", "consecutive": 0.5}, "consecutive"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        wg.MapDataset.range(5).on_error(**arguments)


def test_what_needs_a_length_or_another_element_is_refused_elsewhere() -> None:
    endless = wg.MapDataset.range(5).repeat()
    with pytest.raises(ValueError, match="infinite"):
        endless.on_error("skip", budget=0.1)
    with pytest.raises(ValueError, match="cannot follow"):
        wg.MapDataset.range(5).on_error("skip").batch(2)


def test_an_element_without_a_substitute_fails() -> None:
    ds = wg.MapDataset.source(Broken(3, frozenset({0, 1, 2}))).on_error("replace")
    with pytest.raises(OSError, match="record 1 is broken"):
        ds[1]


def test_failures_upstream_of_a_users_dataset_are_counted() -> None:
    class Doubled(wg.MapDataset[int]):
        def __len__(self) -> int:
            return len(self._parent)

        def __getitem__(self, index: Any) -> Any:
            element = self._parent[index]
            return None if element is None else 2 * element

    for policy in ("skip", "replace"):
        it = iter(Doubled(pipeline(policy)).to_iter_dataset())
        elements = list(it)
        assert len(elements) == (N if policy == "replace" else N - len(BAD))
        assert [record.index for record in it.errors()] == sorted(BAD)


@pytest.mark.parametrize("size", [1, 8])
def test_rows_of_a_batch_that_follow_a_failure_end_the_row_of_failures(size: int) -> None:
    # Every second element fails: never two in a row, however batches are read.
    source = wg.MapDataset.source(Broken(64, frozenset(range(0, 64, 2))))
    ds = source.on_error("replace", consecutive=1).batch(size)
    assert len(list(ds.to_iter_dataset(wg.ReadOptions(num_threads=0)))) == 64 // size
    two = wg.MapDataset.source(Broken(64, frozenset({7, 8}))).on_error("replace", consecutive=1)
    elements, error = until_error(iter(two.batch(size)))
    assert len(elements) == 8 // size
    assert "2 elements in a row" in str(error)


def test_on_error_in_a_dataset_that_is_opened_later_is_refused() -> None:
    inner = [pipeline("skip").to_iter_dataset() for _ in range(2)]
    ds = InterleaveIterDataset(inner, cycle_length=2)
    _, error = until_error(iter(ds))
    assert "Put `on_error` after the stage" in str(error)
    plain = [wg.MapDataset.source(Broken(9, frozenset({4}))) for _ in range(2)]
    outside = InterleaveIterDataset([one.to_iter_dataset() for one in plain], cycle_length=2)
    assert list(outside.on_error("skip")) == [0, 0, 1, 1, 2, 2, 3, 3, 5, 5, 6, 6, 7, 7, 8, 8]


@pytest.mark.parametrize("workers", [0, 2])
def test_lanes_are_those_of_workers(workers: int) -> None:
    ds = pipeline("skip").to_iter_dataset()
    options = wg.MultiprocessingOptions(num_workers=workers, lanes=2)
    it = iter(ds.mp_prefetch(options))
    assert list(it) == [x for x in range(N) if x not in BAD]
    assert [record.index for record in it.errors()] == sorted(BAD)


def test_a_state_fits_another_number_of_workers() -> None:
    ds = pipeline("skip", budget=8).to_iter_dataset()
    expected = [x for x in range(N) if x not in BAD]
    for before in WORKERS:
        it = iter(with_workers(ds, before))
        for _ in range(250):
            next(it)
        for after in WORKERS:
            other = iter(with_workers(ds, after))
            other.set_state(it.get_state())
            elements, error = until_error(other)
            assert elements == expected[250:]
            assert "9 elements have failed" in str(error)
