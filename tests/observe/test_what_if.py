"""`report.what_if`: predictions, compared with what happens when the change is made.

The work is sleeping, so that it takes the same time on a busy machine.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from wholegrain import experimental
from wholegrain._observe.advice import advice_for_workers
from wholegrain._observe.places import Place
from wholegrain._observe.times import Times
from wholegrain._observe.waiting import Lane
from wholegrain._observe.what_if import Basis, Group, basis_of
from wholegrain._read import machine


def _sleeping(seconds: float) -> Callable[[Any], Any]:
    def decode(x: Any) -> Any:
        time.sleep(seconds)
        return x

    return decode


class _Slow:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        time.sleep(self._seconds)
        return index


def _run(ds: Any, step: float, steps: int) -> tuple[float, Any]:
    """Return the seconds per element of a training loop, after a start-up, and its report."""
    with iter(ds) as it:
        for _ in range(10):
            next(it)
            time.sleep(step)
        began = time.perf_counter()
        for _ in range(steps):
            next(it)
            time.sleep(step)
        return (time.perf_counter() - began) / steps, it.report()


def _reads(threads: int, buffer: int = 64) -> Any:
    return wg.MapDataset.source(_Slow(0.012)).to_iter_dataset(wg.ReadOptions(threads, buffer))


def _maps(seconds: float) -> Any:
    return wg.MapDataset.range(10**6).to_iter_dataset().map(_sleeping(seconds))


def _workers(ds: Any, count: int) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=count))


_CASES: dict[str, tuple[Any, Any, dict[str, Any], float]] = {
    "more threads": (_reads(1), _reads(4), {"num_threads": 4}, 0.001),
    "more threads than the loop needs": (_reads(1), _reads(8), {"num_threads": 8}, 0.008),
    "a larger buffer": (_reads(8, 2), _reads(8, 64), {"prefetch_buffer_size": 64}, 0.001),
    "more workers": (
        _workers(_maps(0.012), 1),
        _workers(_maps(0.012), 2),
        {"num_workers": 2},
        0.001,
    ),
    "workers at all": (_maps(0.012), _workers(_maps(0.012), 2), {"num_workers": 2}, 0.004),
    "a faster stage": (_maps(0.012), _maps(0.004), {"stage": "map(", "speedup": 3}, 0.004),
    "a faster stage in a thread": (
        experimental.ThreadPrefetchIterDataset(_maps(0.012), prefetch_buffer_size=8),
        experimental.ThreadPrefetchIterDataset(_maps(0.004), prefetch_buffer_size=8),
        {"stage": "map(", "speedup": 3},
        0.006,
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_change_gives_what_was_predicted(case: str) -> None:
    before, after, change, step = _CASES[case]
    for attempt in range(5):  # Another program may be busy during one of two runs.
        seconds, report = _run(before, step, 60)
        predicted = report.what_if(**change)
        gained = seconds / _run(after, step, 60)[0]
        if abs(predicted.speedup / gained - 1) < 0.2 or attempt == 4:
            break
    assert predicted.speedup == pytest.approx(gained, rel=0.2), str(predicted)
    assert f"{predicted.speedup:.2g}x" in str(predicted)
    assert 0 <= predicted.wait_share < 1


def test_headspace_is_how_much_faster_the_loop_could_be() -> None:
    for attempt in range(3):
        _, report = _run(_workers(_maps(0.004), 1), 0.02, 100)
        if 3.5 < (report.headspace or 0) < 6 or attempt == 2:
            break
    assert 3.5 < (report.headspace or 0) < 6
    with iter(_maps(0.004)) as it:
        for _ in range(20):
            next(it)
            time.sleep(0.001)
        assert 0 < (it.headspace() or 1) < 0.6


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({}, ValueError, "Say what to change"),
        ({"stage": "map("}, ValueError, "belong together"),
        ({"stage": "map(", "speedup": 0}, ValueError, "more than 0"),
        ({"stage": "none", "speedup": 2}, KeyError, "There is no stage 'none'"),
        ({"num_workers": -1}, ValueError, "cannot be negative"),
        ({"num_threads": "4"}, TypeError, "whole number"),
    ],
)
def test_wrong_changes_are_refused(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    _, report = _run(_maps(0.001), 0.001, 30)
    with pytest.raises(error, match=text):
        report.what_if(**change)


def test_before_the_first_element_there_is_no_basis() -> None:
    with iter(_maps(0.001)) as it, pytest.raises(ValueError, match="take some elements first"):
        it.report().what_if(num_workers=2)


def test_workers_count_by_what_the_consumer_got_of_them() -> None:
    # They have made more than it got, or their last report is old.
    for made, work in ((100, 1.0), (50, 0.5), (200, 2.0)):
        stages = {"0": _times(100), "0.0": _times(made)}
        assert _basis(stages, work).groups["workers"].idle == pytest.approx(1.0)
    unknown = {"0": _times(100), "0.0": _times(20)}
    assert not _basis(unknown, 0.2).is_complete


def _times(elements: int) -> Times:
    times = Times()
    times.elements = elements
    return times


def _basis(stages: dict[str, Times], work: float) -> Basis:
    lane = Lane({"0": 0.0, "0.0": work}, {"0": 0.0, "0.0": 0.0}, {}, {}, {})
    lane.runs_in.update({"0": "training loop", "0.0": "workers"})
    output = _workers(_maps(0.001), 1)
    places = [Place("0", output, ["0.0"]), Place("0.0", output.parents[0], [])]
    return basis_of(places, lane, {"wait": 0.0, "loop": 1.0, "stages": stages, "workers": {}})


def test_a_report_says_what_more_workers_would_give() -> None:
    _, report = _run(_workers(_maps(0.012), 1), 0.001, 60)
    (line,) = [line for line in report.advice if line.startswith("With num_workers=2")]
    assert "measured basis" in line


@pytest.mark.parametrize(("idle", "is_more_advised"), [(0.5, True), (0.02, False)])
def test_advice_about_workers_does_not_contradict_its_numbers(
    idle: float, is_more_advised: bool
) -> None:
    processors = machine.available_cpus()
    output = _workers(_maps(0.001), processors)
    places = [Place("0", output, ["0.0"]), Place("0.0", output.parents[0], [])]
    group = Group(computing=1 - idle, idle=idle, count=processors, processors=processors)
    basis = Basis({"training loop": Group(0.01), "workers": group}, 0.01)
    lines, more = advice_for_workers(places, False, basis)
    assert (more is not None) == is_more_advised
    assert lines[0].startswith("Use more workers" if is_more_advised else "All ")
