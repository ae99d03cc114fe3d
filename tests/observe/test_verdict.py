"""What a report says limits a pipeline: only as far as there is evidence for it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import experimental
from wholegrain._observe.advice import judge
from wholegrain._observe.places import Place
from wholegrain._observe.waiting import Lane
from wholegrain._observe.what_if import Basis

_NO_THREADS = wg.ReadOptions(num_threads=0)


def _computes(x: Any) -> Any:
    until = time.thread_time() + 0.002
    while time.thread_time() < until:
        pass
    return x


def _sorts(x: Any) -> Any:
    return np.sort(np.random.default_rng(0).random(20_000))[x % 10]


class _Sleeps:
    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        time.sleep(0.005)
        return index


def _report(ds: Any, seconds: float = 0.4, step: Callable[[], Any] = lambda: None) -> Any:
    it = iter(ds)
    until = None
    for _ in it:
        step()
        until = until or time.perf_counter() + seconds
        if time.perf_counter() > until:
            break
    report = it.report()
    it.close()
    return report


@contextlib.contextmanager
def _busy_machine() -> Iterator[None]:
    """Run two programs for each processor that do nothing but compute."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


_KNOWN: dict[str, tuple[Callable[[], Any], str, str]] = {
    "computing map": (lambda: wg.MapDataset.range(10**6).map(_computes), "map(", "computes"),
    "computing map of an iterator": (
        lambda: wg.MapDataset.range(10**6).to_iter_dataset().map(_computes),
        "map(",
        "computes",
    ),
    "work in memory": (lambda: wg.MapDataset.range(10**6).map(_sorts).batch(4), "map(", "computes"),
    "work in memory of an iterator": (
        lambda: wg.MapDataset.range(10**6).to_iter_dataset().map(_sorts).batch(4),
        "map(",
        "computes",
    ),
    "slow batch": (
        lambda: wg.MapDataset.range(10**6).to_iter_dataset().batch(64, batch_fn=_computes),
        "batch(64)",
        "computes",
    ),
    "sleeping source": (lambda: wg.MapDataset.source(_Sleeps()).batch(4), "source(", "waits"),
}


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("kind", _KNOWN)
def test_the_truth_is_told_however_busy_the_machine_is(kind: str, is_busy: bool) -> None:
    make, name, does = _KNOWN[kind]
    with _busy_machine() if is_busy else contextlib.nullcontext():
        report = _report(make(), 1.0)
    assert report.stages[report.limiting].name.startswith(name), str(report)
    # Even where nothing else runs on purpose, others may.
    assert f"mostly {does}" in report.verdict or "it is unclear" in report.verdict, str(report)


@pytest.mark.parametrize("workers", [0, 2])
def test_where_the_training_loop_is_slow_data_is_not_the_limit(workers: int) -> None:
    ds: Any = wg.MapDataset.range(10**6).map(lambda x: x + 1).batch(4).to_iter_dataset()
    ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))
    report = _report(ds, step=lambda: time.sleep(0.01))
    assert report.verdict.startswith("Data is not the limit"), str(report)
    assert report.limiting is None
    assert not report.advice


def test_a_few_milliseconds_name_no_bottleneck() -> None:
    it = iter(wg.MapDataset.range(40).map(lambda x: x).batch(4))
    list(it)
    report = it.report()
    assert report.limiting is None
    assert "too short" in report.verdict
    assert "limits" not in str(report).replace("what limits it", "")


def test_the_first_element_names_no_bottleneck() -> None:
    it = iter(wg.MapDataset.range(10**6).map(_computes).batch(100))
    next(it)
    report = it.report()
    assert report.limiting is None
    assert report.start_seconds > 0.1


def _slow_at_first() -> Callable[[Any], Any]:
    seen: list[Any] = []

    def opens(x: Any) -> Any:
        if not seen:
            seen.append(x)
            time.sleep(0.8)
        return x

    return opens


def test_the_start_up_is_no_bottleneck() -> None:
    ds: Any = wg.MapDataset.range(10**6).map(_slow_at_first()).map(_computes)
    report = _report(ds.to_iter_dataset(_NO_THREADS))
    assert report.stages[report.limiting].name == "map(_computes)", str(report)
    assert report.start_seconds > 0.7
    assert report.wait_seconds < 0.7
    assert "start-up took" in str(report)
    assert report.stage("map(_computes)").share > 0.9


def test_the_start_up_of_an_iterator_is_no_bottleneck() -> None:
    ds: Any = wg.MapDataset.range(10**6).to_iter_dataset()
    report = _report(ds.map(_slow_at_first()).map(_computes).batch(2))
    assert report.stages[report.limiting].name == "map(_computes)", str(report)


def test_the_start_up_of_a_window_shuffle_is_no_bottleneck() -> None:
    ds: Any = wg.MapDataset.range(10**6).to_iter_dataset().map(_computes)
    ds = experimental.WindowShuffleIterDataset(ds, window_size=200, seed=1)
    it = iter(ds.map(lambda x: x))
    next(it)
    assert it.report().limiting is None
    it.close()


def test_nothing_is_said_of_workers_that_have_not_told_anything() -> None:
    ds: Any = wg.MapDataset.range(10**6).map(_computes).batch(4).to_iter_dataset()
    ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))
    for seconds in (0.01, 0.15):
        report = _report(ds, seconds)
        assert report.limiting is None or report.stages[report.limiting].name.startswith("map(")
        assert not any("`batch`" in line for line in report.advice)


def test_batching_is_not_advised_where_there_are_batches() -> None:
    ds: Any = wg.MapDataset.range(100).to_iter_dataset()
    for is_batched in (False, True):
        parent = ds.batch(4) if is_batched else ds.map(lambda x: x)
        output = parent.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))
        places = [Place("0", output, ["0.0"]), Place("0.0", parent, [])]
        seconds = {"0": 1.0, "0.0": 0.1}
        blame = {"0": 0.9, "0.0": 0.1}
        who = {"0": "training loop", "0.0": "workers"}
        lane = Lane(seconds, dict(seconds), dict.fromkeys(seconds, 0.0), blame, who)
        times: Any = {key: type("T", (), {"own": own})() for key, own in seconds.items()}
        seen = {"wait": 1.0, "loop": 0.1, "stages": times, "workers": {}, "cpu": 1.0}
        seen |= {"measured_wait": 1.0, "queued": 0.0}
        advice = " ".join(judge(lane, places, seen, Basis({}, 0.1)).advice)
        assert ("call `batch` upstream" in advice) is not is_batched


def test_workers_are_advised_only_where_elements_take_long() -> None:
    quick = _report(wg.MapDataset.range(10**9).map(lambda x: x + 1).batch(4))
    assert not any("mp_prefetch" in line for line in quick.advice), str(quick)
    slow = _report(wg.MapDataset.range(10**9).map(_computes).batch(4))
    assert any('num_workers="auto"' in line for line in slow.advice) or os.cpu_count() == 1
    # Where "auto" would be refused, a number is given.
    ds: Any = wg.MapDataset.range(10**9).to_iter_dataset().filter(_computes).batch(4)
    filtered = _report(ds)
    assert not any("auto" in line for line in filtered.advice), str(filtered)


def test_a_report_says_in_a_line_what_it_is() -> None:
    ds: Any = wg.MapDataset.range(10**6).map(_computes).named("a name " * 40).batch(4)
    report = _report(ds, 0.2)
    assert "\n" not in repr(report)
    assert len(repr(report)) < 120
    assert repr(report).startswith("<Report of 4 stages: waited")


def test_counts_of_workers_are_all_marked_as_estimates() -> None:
    ds: Any = wg.MapDataset.range(64).map(_computes).batch(4).to_iter_dataset(_NO_THREADS)
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    list(it)
    report = it.report()
    it.close()
    stages = [stage for stage in report.stages if stage.runs_in == "workers"]
    assert len(stages) == 4
    assert all(stage.is_estimated for stage in stages)
    assert any(stage.elements for stage in stages)
    for stage in stages:
        if stage.elements:
            assert f"~{stage.elements:,}" in str(report)
            assert f"~{stage.elements:,}" in report.to_html()


def test_infinite_pipelines_say_so_in_reports() -> None:
    ds: Any = wg.MapDataset.mix([wg.MapDataset.range(3).repeat()] * 2).batch(64)
    report = _report(ds, 0.02)
    assert report.stage("batch(64)").is_infinite
    assert report.stage("batch(64)").length is None
    assert report.stage("range").length == 3
    assert "infinite" in report.to_html()
    assert str(2**63 // 64)[:6] not in report.to_html().replace(",", "")
