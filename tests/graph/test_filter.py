"""filter: None by index, left out in order; and the thresholds that notice waste."""

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import END, READ_OPTIONS, R, X, source
from wholegrain.testing import check_iter_dataset, check_map_dataset


class Odd(wg.transforms.Filter):
    def filter(self, element: int) -> bool:
        return element % 2 == 1


def _odd(element: int) -> bool:
    return element % 2 == 1


def test_by_index_dropped_elements_are_none_and_the_length_stays() -> None:
    ds = R(5).filter(_odd)
    assert len(ds) == 5
    assert [ds[i] for i in range(7)] == [None, 1, None, 3, None, None, 1]
    assert list(ds) == [1, 3]


def test_in_order_dropped_elements_are_left_out() -> None:
    assert list(R(6).to_iter_dataset().filter(_odd)) == [1, 3, 5]


def _text_if_odd(element: int) -> str:
    return "x" * (element % 2)


@pytest.mark.parametrize("transform", [_odd, Odd(), lambda x: x % 2, _text_if_odd])
def test_whatever_is_true_keeps_the_element(transform: Any) -> None:
    assert list(R(6).filter(transform)) == [1, 3, 5]
    assert list(R(6).to_iter_dataset().filter(transform)) == [1, 3, 5]


def test_none_goes_past_the_function_by_index_and_into_it_in_order() -> None:
    seen: list[Any] = []

    def remember(element: Any) -> bool:
        seen.append(element)
        return True

    ds = source([1, None, 3])
    assert [ds.filter(remember)[i] for i in range(3)] == [1, None, 3]
    assert seen == [1, 3]
    assert list(ds.to_iter_dataset(allow_nones=True).filter(remember)) == [1, None, 3]
    assert seen == [1, 3, 1, None, 3]


def test_several_filters_follow_each_other() -> None:
    ds = R(30).filter(_odd).filter(lambda x: x % 3 == 0).filter(lambda x: x % 5 == 0)
    assert list(ds) == [15]
    it = R(30).to_iter_dataset().filter(_odd).filter(lambda x: x % 3 == 0)
    assert list(it) == [3, 9, 15, 21, 27]


def test_nothing_may_be_left() -> None:
    assert list(R(50).filter(lambda _: False)) == []
    assert list(R(50).to_iter_dataset().filter(lambda _: False)) == []
    assert list(R(50).to_iter_dataset().filter(lambda _: False).batch(2)) == []


def test_the_state_stands_behind_the_last_element_that_was_looked_at() -> None:
    it = iter(R(9).filter(lambda x: x in (0, 2)).to_iter_dataset())
    assert [next(it), it.get_state()] == [0, {"next_index": 1}]
    assert [next(it), it.get_state()] == [2, {"next_index": 3}]
    assert [next(it, END), it.get_state()] == [END, {"next_index": 9}]
    it = iter(R(9).to_iter_dataset().filter(lambda x: x in (0, 2)))
    assert [next(it), it.get_state()] == [0, {"next_index": 1}]
    assert [next(it), it.get_state()] == [2, {"next_index": 3}]
    assert [next(it, END), it.get_state()] == [END, {"next_index": 9}]


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_elements_are_the_same_with_any_number_of_threads(options: wg.ReadOptions) -> None:
    assert list(R(300).filter(_odd).to_iter_dataset(options)) == list(range(1, 300, 2))


def test_reads_chunks_as_elements_and_resumes() -> None:
    check_map_dataset(R(13).filter(_odd))
    check_iter_dataset(R(13).filter(_odd).to_iter_dataset())
    check_iter_dataset(R(13).to_iter_dataset().filter(_odd))
    check_iter_dataset(R(40).to_iter_dataset().filter(lambda x: x % 7 < 2).batch(3))


# Thresholds. `by_index` drops elements with a Map filter, in_order with an Iter filter.

Pipeline = Callable[[int, Callable[[int], bool]], wg.IterDataset[int]]


def _by_index(length: int, keep: Callable[[int], bool]) -> Any:
    return R(length).filter(keep).to_iter_dataset()


def _in_order(length: int, keep: Callable[[int], bool]) -> Any:
    return R(length).to_iter_dataset().filter(keep)


_PIPELINES = pytest.mark.parametrize("pipeline", [_by_index, _in_order])


def _raising_at(ratio: float | None, ds: wg.IterDataset[Any]) -> Any:
    options = X.DatasetOptions(filter_raise_threshold_ratio=ratio, filter_warn_threshold_ratio=None)
    return X.WithOptionsIterDataset(ds, options)


@_PIPELINES
def test_a_window_in_which_too_many_were_dropped_raises(pipeline: Pipeline) -> None:
    ds = _raising_at(0.9, pipeline(1000, lambda x: x < 100))
    it = iter(ds)
    assert [next(it) for _ in range(100)] == list(range(100))
    with pytest.raises(ValueError, match=r"skipped 90\.00 % of the last seen 1000") as raised:
        next(it)
    stage = "PrefetchDatasetIterator" if pipeline is _by_index else "FilterDatasetIterator"
    assert f"Transformation {stage}(" in str(raised.value)
    assert "DatasetOptions" in str(raised.value)


@_PIPELINES
def test_one_element_fewer_dropped_does_not_raise(pipeline: Pipeline) -> None:
    assert list(_raising_at(0.9, pipeline(1000, lambda x: x < 101))) == list(range(101))


@_PIPELINES
def test_an_incomplete_window_is_not_judged(pipeline: Pipeline) -> None:
    assert list(_raising_at(0.1, pipeline(999, lambda _: False))) == []


@_PIPELINES
@pytest.mark.parametrize("ratio", [None, 0])
def test_none_and_zero_switch_it_off(pipeline: Pipeline, ratio: Any) -> None:
    assert list(_raising_at(ratio, pipeline(2500, lambda _: False))) == []


@_PIPELINES
def test_windows_do_not_overlap(pipeline: Pipeline) -> None:
    # 1000 elements in a row are dropped, but no window has more than half of them.
    ds = _raising_at(0.6, pipeline(2000, lambda x: not 500 <= x < 1500))
    assert list(ds) == [*range(500), *range(1500, 2000)]


@_PIPELINES
def test_the_error_stands_in_place_of_the_thousandth_element(pipeline: Pipeline) -> None:
    it = iter(_raising_at(0.9, pipeline(2500, lambda x: x % 1000 in (10, 999))))
    assert next(it) == 10
    with pytest.raises(ValueError, match=r"skipped 99\.80 %"):
        next(it)
    assert it.get_state() == {"next_index": 1000}
    # Iteration goes on behind it, and counts anew.
    assert next(it) == 1010
    with pytest.raises(ValueError, match=r"skipped 99\.80 %"):
        next(it)
    assert it.get_state() == {"next_index": 2000}
    assert [next(it), next(it, END)] == [2010, END]


@_PIPELINES
def test_a_batch_raises_it_too(pipeline: Pipeline) -> None:
    it: Any = iter(_raising_at(0.9, pipeline(1500, lambda x: x % 100 == 0).batch(4)))
    assert [next(it).tolist() for _ in range(2)] == [[0, 100, 200, 300], [400, 500, 600, 700]]
    with pytest.raises(ValueError, match="skipped 99"):
        next(it)
    assert next(it).tolist() == [1000, 1100, 1200, 1300]


@_PIPELINES
@pytest.mark.parametrize("kept", [100, 101])
def test_a_warning_is_logged_once(
    pipeline: Pipeline, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wholegrain")
    # Windows are exact, however large the chunks are in which elements are read.
    ds = pipeline(4000, lambda x: x % 2000 < kept or x % 2000 >= 1000)
    assert len(list(ds)) == 2 * (1000 + kept)
    assert len(caplog.records) == (1 if kept == 100 else 0)
    for record in caplog.records:
        assert record.name == "wholegrain"
        assert "skipped 90.00 % of the last seen 1000 elements" in record.getMessage()


@_PIPELINES
def test_batches_are_watched_by_the_same_windows(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wholegrain")
    list(pipeline(2000, lambda x: x < 100 or x >= 1000).batch(7))
    assert len(caplog.records) == 1
    list(pipeline(2000, lambda x: x < 101 or x >= 1000).batch(7))
    assert len(caplog.records) == 1


@_PIPELINES
def test_the_warning_can_be_switched_off(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    list(_raising_at(None, pipeline(3000, lambda _: False)))
    assert not caplog.records


def test_missing_elements_that_are_wanted_are_not_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ds = R(1500).filter(lambda _: False).to_iter_dataset(allow_nones=True)
    assert list(_raising_at(0.1, ds)) == [None] * 1500
    list(ds)
    assert not caplog.records


@pytest.mark.parametrize("seconds", [0.0, 3e-4])  # Chunks of many elements, and of a few.
def test_only_the_element_at_which_too_many_were_dropped_is_lost(seconds: float) -> None:
    def is_late(x: int) -> bool:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return x >= 600

    ds = R(1200).filter(is_late).to_iter_dataset(wg.ReadOptions(num_threads=0))
    options = X.DatasetOptions(filter_raise_threshold_ratio=0.5)
    it = iter(X.WithOptionsIterDataset(ds, options))
    before = list(itertools.islice(it, 399))
    with pytest.raises(ValueError, match="skipped 60"):
        next(it)
    assert it.get_state() == {"next_index": 1000}
    assert [*before, *it] == [*range(600, 999), *range(1000, 1200)]
