"""`report.what_if`: predictions, compared with what happens when the change is made.

The work is sleeping, so that it takes the same time on a busy machine.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from wholegrain import experimental


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
    for attempt in range(3):
        seconds, report = _run(before, step, 60)
        predicted = report.what_if(**change)
        gained = seconds / _run(after, step, 60)[0]
        if abs(predicted.speedup / gained - 1) < 0.2 or attempt == 2:
            break
    assert predicted.speedup == pytest.approx(gained, rel=0.2), str(predicted)
    assert f"{predicted.speedup:.2g}x" in str(predicted)
    assert 0 <= predicted.wait_share < 1


def test_headspace_is_how_much_faster_the_loop_could_be() -> None:
    # What a worker has measured may be a part of its work, so this is an estimate.
    _, report = _run(_workers(_maps(0.004), 1), 0.02, 100)
    assert 3 < (report.headspace or 0) < 15
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


def test_a_report_says_what_more_workers_would_give() -> None:
    _, report = _run(_workers(_maps(0.012), 1), 0.001, 60)
    (line,) = [line for line in report.advice if line.startswith("With num_workers=2")]
    assert "measured basis" in line
