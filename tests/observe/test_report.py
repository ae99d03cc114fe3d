"""`it.report()`: the stage that limits, and shares of time like those that the stages measure."""
# mypy: disable-error-code="assignment,index,operator"

import gc
import itertools
import json
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import experimental
from wholegrain._observe import consumer

_TIMES: Counter[str] = Counter()
_MILLISECOND = 1e-3


@pytest.fixture(autouse=True)
def _no_times() -> None:
    _TIMES.clear()


class Costs:
    """A function that waits or computes, and notes how long that really took."""

    def __init__(self, name: str, milliseconds: float, computes: bool = False) -> None:
        self._name, self._seconds = name, milliseconds * _MILLISECOND
        self._computes = computes
        self.__name__ = name

    def __call__(self, x: Any) -> Any:
        start = time.perf_counter()
        if self._computes:
            busy_until = time.thread_time() + self._seconds
            while time.thread_time() < busy_until:
                pass
        else:
            time.sleep(self._seconds)
        _TIMES[self._name] += time.perf_counter() - start
        return x


class SlowSource:
    def __init__(self, milliseconds: float) -> None:
        self._read = Costs("source", milliseconds)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        self._read(index)
        return index


def _taken(it: Iterator[Any], count: int, step: Callable[[Any], Any] = lambda x: x) -> None:
    for element in itertools.islice(it, count):
        step(element)


def _check_shares(report: Any, names: dict[str, str], within: float = 0.15) -> None:
    """Compare the shares with what the functions measured themselves: of the stages named."""
    whole = sum(_TIMES[name] for name in names)
    seen = {name: report.stage(stage).seconds for name, stage in names.items()}
    for name in names:
        assert seen[name] / sum(seen.values()) == pytest.approx(_TIMES[name] / whole, abs=within)


def test_names_the_slow_map_of_an_iterator() -> None:
    ds = wg.MapDataset.range(1000).to_iter_dataset()
    ds = ds.map(Costs("decode", 6)).map(Costs("resize", 2)).batch(4)
    it = iter(ds)
    _taken(it, 25)
    report = it.report()
    assert report.stages[report.limiting].name == "map(decode)"
    assert "map(decode) is the bottleneck" in report.verdict
    assert report.wait_share > 0.9
    assert report.stage("map(decode)").idle_share > 0.5
    assert any("to_iter_dataset" in line for line in report.advice)
    _check_shares(report, {"decode": "map(decode)", "resize": "map(resize)"})


def test_tells_maps_in_a_row_apart() -> None:
    ds = wg.MapDataset.range(1000).map(Costs("first", 1)).map(Costs("second", 4))
    it = iter(ds.to_iter_dataset(wg.ReadOptions(num_threads=0)))
    _taken(it, 60)
    report = it.report()
    assert report.stages[report.limiting].name == "map(second)"
    _check_shares(report, {"first": "map(first)", "second": "map(second)"})


def test_a_function_that_computes_is_told_from_one_that_waits() -> None:
    ds = wg.MapDataset.range(1000).to_iter_dataset()
    it = iter(ds.map(Costs("compute", 5, computes=True)).map(Costs("wait", 1)))
    _taken(it, 60)
    report = it.report()
    assert report.stages[report.limiting].name == "map(compute)"
    assert report.stage("map(compute)").idle_share < report.stage("map(wait)").idle_share
    assert "computes" in report.verdict
    assert any("mp_prefetch" in line or "processor" in line for line in report.advice)
    _check_shares(report, {"compute": "map(compute)", "wait": "map(wait)"})


def test_names_the_source_that_threads_wait_for() -> None:
    ds = wg.MapDataset.source(SlowSource(8)).map(Costs("decode", 2))
    it = iter(ds.to_iter_dataset(wg.ReadOptions(num_threads=4, prefetch_buffer_size=16)))
    _taken(it, 100)
    report = it.report()
    assert report.stages[report.limiting].name == "source(SlowSource)"
    assert report.stage("source").runs_in == "reader threads"
    assert any("num_threads" in line for line in report.advice)
    _check_shares(report, {"source": "source(SlowSource)", "decode": "map(decode)"})


def test_names_what_a_thread_is_slow_at() -> None:
    ds: Any = wg.MapDataset.range(1000).to_iter_dataset().map(Costs("decode", 5)).batch(2)
    it: Any = iter(experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2))
    _taken(it, 40)
    report = it.report()
    assert report.stages[report.limiting].name == "map(decode)"
    assert report.stage("map(decode)").runs_in == "thread"
    assert report.stage("thread prefetch").waited_seconds > 0
    it.close()


def test_names_what_workers_are_slow_at() -> None:
    no_threads = wg.ReadOptions(num_threads=0)
    ds = wg.MapDataset.range(10_000).map(Costs("read", 1)).to_iter_dataset(no_threads)
    ds = ds.map(Costs("decode", 6)).batch(4)
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    _taken(it, 60)
    report = it.report()
    assert report.stages[report.limiting].name == "map(decode)"
    assert report.stage("map(decode)").runs_in == "workers"
    assert report.start_seconds > 0
    # Workers measure for themselves: sleeps of 6 and of 1 ms.
    decode, read = report.stage("map(decode)").seconds, report.stage("map(read)").seconds
    assert decode / (decode + read) == pytest.approx(6 / 7, abs=0.15)
    it.close()
    assert it.report().stage("map(decode)").seconds >= decode


def test_what_workers_read_is_counted_once() -> None:
    ds: Any = wg.MapDataset.range(128).map(Costs("decode", 5)).batch(4)
    ds = ds.to_iter_dataset(wg.ReadOptions(num_threads=0))
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    list(it)
    report = it.report()
    assert report.stage("range").elements == 128
    assert report.stage("map(decode)").elements == 128
    assert report.stage("batch(4)").elements == 32
    assert report.stage("to_iter_dataset").elements == 32
    # The worker reads by itself, so that nothing waits in front of what it does.
    assert report.stages[report.limiting].name == "map(decode)"
    it.close()


def test_names_what_workers_are_slow_at_however_many_there_are() -> None:
    no_threads = wg.ReadOptions(num_threads=0)
    ds = wg.MapDataset.range(100_000).map(Costs("read", 1)).to_iter_dataset(no_threads)
    ds = ds.map(Costs("decode", 6)).batch(4)
    options = wg.MultiprocessingOptions(num_workers="auto", max_workers=2)
    it = iter(ds.mp_prefetch(options).map(lambda batch: batch))
    _taken(it, 60)
    report = it.report()
    assert report.stages[report.limiting].name == "map(decode)"
    assert report.stage("map(decode)").runs_in == "workers"
    assert report.stage("batch(4)").elements
    assert report.start_seconds > 0
    decode, read = report.stage("map(decode)").seconds, report.stage("map(read)").seconds
    assert decode / (decode + read) == pytest.approx(6 / 7, abs=0.15)
    it.close()
    assert it.report().stage("map(decode)").seconds >= decode


def test_what_a_worker_said_is_kept_when_it_has_gone() -> None:
    no_threads = wg.ReadOptions(num_threads=0)
    ds: Any = wg.MapDataset.range(100_000).map(Costs("decode", 5)).to_iter_dataset(no_threads)
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers="auto", max_workers=2)))
    wg.multiprocessing.set_worker_count(it, 2)
    _taken(it, 300)
    with_two = it.report().stage("map(decode)").seconds
    wg.multiprocessing.set_worker_count(it, 1)
    _taken(it, 100)
    assert it.report().stage("map(decode)").seconds >= with_two > 0
    it.close()


def test_a_slow_training_loop_is_the_bottleneck() -> None:
    ds: Any = wg.MapDataset.range(10_000).to_iter_dataset().map(lambda x: x + 1).batch(8)
    it = iter(ds)
    _taken(it, 80, Costs("train", 5))
    report = it.report()
    assert report.limiting is None
    assert "Data is not the limit" in report.verdict
    assert report.wait_share < 0.05
    assert report.loop_seconds == pytest.approx(_TIMES["train"], rel=0.25)


def test_half_of_the_time_is_told_to_be_waiting() -> None:
    it = iter(wg.MapDataset.range(1000).to_iter_dataset().map(Costs("load", 5)))
    _taken(it, 80, Costs("train", 5))
    true_share = _TIMES["load"] / (_TIMES["load"] + _TIMES["train"])
    assert it.report().wait_share == pytest.approx(true_share, abs=0.1)


def test_counts_elements_and_bytes() -> None:
    rows = np.zeros((64, 250), np.float32)
    ds: Any = wg.MapDataset.source(rows).map(lambda row: row * 2).batch(4)
    it = iter(ds.to_iter_dataset(wg.ReadOptions(num_threads=0)))
    next(it)
    time.sleep(0.003)  # No stage is measured before.
    list(it)
    report = it.report()
    assert report.stage("source").elements == 64
    assert report.stage("map").elements == 64
    assert report.stage("batch(4)").elements == 16
    assert report.stage("map").nbytes == 64 * 1000
    assert report.stage("batch(4)").nbytes == 64 * 1000


def test_quick_pipelines_are_seen_too() -> None:
    ds: Any = wg.MapDataset.range(10**9).map(lambda x: x + 1).to_iter_dataset()
    it = iter(ds.map(lambda x: x + 1).filter(lambda x: x % 2 == 1).batch(16))
    for _ in range(30):  # Clocks are on now and then.
        _taken(it, 3000)
        report = it.report()
        if all(stage.seconds > 0 for stage in report.stages if "(lambda)" in stage.name):
            break
    else:
        pytest.fail(f"Some stages are not seen:\n{report}")
    assert sum(stage.share for stage in report.stages) == pytest.approx(1)
    assert sum(stage.wait_share for stage in report.stages) == pytest.approx(1)


def test_an_iterator_of_the_users_has_its_own_share() -> None:
    class Numbers(wg.IterDataset[int]):
        def __iter__(self) -> "NumbersIterator":
            return NumbersIterator()

    class NumbersIterator(wg.DatasetIterator[int]):
        def __next__(self) -> int:
            Costs("numbers", 4)(0)
            return 1

        def get_state(self) -> Any:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    it = iter(Numbers().map(Costs("small", 1)).batch(2))
    _taken(it, 50)
    report = it.report()
    assert report.stages[report.limiting].name == "Numbers"


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stages_inside_an_interleave_are_told_apart(num_workers: int) -> None:
    files = [
        wg.MapDataset.range(1000).to_iter_dataset().map(Costs("decode", 4)).map(Costs("small", 1))
        for _ in range(4)
    ]
    ds: Any = experimental.InterleaveIterDataset(files, cycle_length=2, iter_buffer_size=0)
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=num_workers)))
    _taken(it, 300)
    report = it.report()
    it.close()
    assert report.stages[report.limiting].name == "map(decode) (inside)"
    interleave = report.stage("interleave")
    names = []
    stage = interleave
    while stage.inputs:
        (number,) = stage.inputs
        stage = report.stages[number]
        names.append(stage.name)
    assert names == [
        "map(small) (inside)",
        "map(decode) (inside)",
        "to_iter_dataset (inside)",
        "range(0, 1000) (inside)",
    ]


def test_datasets_that_were_opened_meanwhile_are_not_kept_alive() -> None:
    opened = []

    def made(n: int) -> Any:
        ds = wg.MapDataset.range(n, n + 4).map(lambda x: x).to_iter_dataset()
        opened.append(weakref.ref(ds))
        return ds

    it = iter(experimental.InterleaveIterDataset(wg.MapDataset.range(40).map(made), cycle_length=2))
    assert len(list(it)) == 160
    gc.collect()
    assert sum(ref() is not None for ref in opened) < 10
    names = [stage.name for stage in it.report().stages]
    assert names[1:] == ["to_iter_dataset (inside)", "map(lambda) (inside)", "range(0, 4) (inside)"]


def test_a_data_loader_reports() -> None:
    loader = wg.DataLoader(
        data_source=list(range(200)),
        sampler=wg.samplers.SequentialSampler(200),
        operations=[Decode()],
    )
    it = iter(loader)
    _taken(it, 40)
    report = it.report()
    assert report.stages[report.limiting].name == "operation(Decode)"


class Decode(wg.transforms.Map):
    def map(self, element: Any) -> Any:
        time.sleep(3 * _MILLISECOND)
        return element


def test_values_for_json() -> None:
    it = iter(wg.MapDataset.range(100).map(lambda x: x))
    list(it)
    values = json.loads(json.dumps(it.report().as_dict()))
    assert {"stages", "wait_seconds", "loop_seconds", "wait_share", "verdict"} <= values.keys()
    assert values["stages"][0]["name"] == "to_iter_dataset"


def test_before_the_first_element_there_is_nothing_to_say() -> None:
    report = iter(wg.MapDataset.range(10)).report()
    assert "take some elements" in report.verdict
    assert "not asked" in str(report)
    assert "<svg" in report.to_html()


def test_rich_shows_it_where_it_is_installed() -> None:
    console = pytest.importorskip("rich.console")
    it = iter(wg.MapDataset.range(100).map(lambda x: x))
    list(it)
    with console.Console(width=120, record=True, quiet=True).capture() as capture:
        console.Console(width=120).print(it.report())
    del capture


def test_nothing_is_kept_alive() -> None:
    class Element:
        pass

    it = iter(wg.MapDataset.range(500).map(lambda _: Element()).to_iter_dataset().map(lambda x: x))
    element = weakref.ref(next(it))
    _taken(it, 499)
    observed = weakref.ref(it.observed)
    it.report()
    iterator = weakref.ref(it)
    del it
    gc.collect()
    assert element() is None
    assert iterator() is None
    assert observed() is None


def test_reports_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHOLEGRAIN_REPORT", "0")
    it = iter(wg.MapDataset.range(10).map(lambda x: x))
    assert list(it) == list(range(10))
    with pytest.raises(ValueError, match="WHOLEGRAIN_REPORT"):
        it.report()


def test_a_training_loop_counts_however_many_elements_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer, "IDLE_S", 0.02)  # Instead of two minutes.
    it = iter(wg.MapDataset.range(10**6).to_iter_dataset())
    start = time.perf_counter()
    for _ in itertools.islice(it, 1500):
        time.sleep(0.0005)
    seconds = time.perf_counter() - start
    assert 0.9 * seconds < it.report().loop_seconds < 1.1 * seconds


def test_an_iterator_that_was_left_alone_has_not_been_trained_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer, "IDLE_S", 0.02)
    monkeypatch.setattr(consumer, "IDLE_TIMES", 3)
    it = iter(wg.MapDataset.range(10**6).to_iter_dataset())
    for _ in itertools.islice(it, 100):
        pass
    time.sleep(0.5)
    for _ in itertools.islice(it, 10**5):
        pass
    assert it.report().loop_seconds < 0.4


def test_elements_that_were_read_without_a_look_are_counted() -> None:
    it = iter(wg.MapDataset.range(10**6).map(lambda x: x + 1).to_iter_dataset())
    for _ in itertools.islice(it, 200_000):
        pass
    report = it.report()
    for stage in ("map", "range"):
        assert 200_000 <= report.stage(stage).elements < 217_000  # A chunk is ahead.
    assert len(list(it)) == 800_000
    assert 998_000 < it.report().stage("map").elements < 1_002_000


@pytest.mark.parametrize("milliseconds", [0.01, 1])
def test_each_read_is_counted_once_whether_or_not_it_was_looked_at(milliseconds: float) -> None:
    spent = Costs("work", milliseconds, computes=True)
    ds: Any = wg.MapDataset.range(10**6).map(spent)
    it: Any = iter(ds.to_iter_dataset(wg.ReadOptions(num_threads=0)).map(lambda x: x).batch(4))
    start = time.perf_counter()
    while time.perf_counter() - start < 0.8:
        next(it)
    seconds = time.perf_counter() - start
    reading = sum(times.reading for times in it.observed.snapshot()["stages"].values())
    assert 0.9 * _TIMES["work"] < reading < 1.02 * seconds


def test_elements_of_quick_iterators_are_counted_by_those_handed_out() -> None:
    it: Any = iter(wg.MapDataset.range(10**6).to_iter_dataset().map(lambda x: x).batch(4))
    start = time.perf_counter()
    _taken(it, 50_000)
    seconds = time.perf_counter() - start
    report = it.report()
    assert report.stage("batch(4)").elements == pytest.approx(50_000, rel=0.1)
    assert report.stage("map").elements == pytest.approx(200_000, rel=0.1)
    # Clocks saw a part of it, on a machine that may have been busy meanwhile.
    assert 0.2 * seconds < report.wait_seconds + report.loop_seconds < 2 * seconds


def test_a_tracked_run_reports_too() -> None:
    options = experimental.DatasetOptions(
        execution_tracking_mode=experimental.ExecutionTrackingMode.STAGE_TIMING
    )
    ds: Any = wg.MapDataset.range(1000).map(Costs("read", 1))
    ds = ds.to_iter_dataset(wg.ReadOptions(num_threads=0)).map(Costs("decode", 4)).batch(2)
    it: Any = iter(experimental.WithOptionsIterDataset(ds, options))
    _taken(it, 50)
    report = it.report()
    assert report.stages[report.limiting].name == "map(decode)"
    assert report.stage("map(decode)").elements == 100
    _check_shares(report, {"read": "map(read)", "decode": "map(decode)"})
