"""Execution tracking: what is measured, and that measuring changes nothing."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import wholegrain as wg
from tests.checkpoint.random_pipelines import random_pipeline
from tests.equivalence.graphs import iter_datasets
from wholegrain._graph import tracked_output
from wholegrain._observe.summary import ExecutionSummary, Node, pretty_format_summary
from wholegrain.testing import difference

X: Any = wg.experimental
_TRACKED = X.DatasetOptions(execution_tracking_mode=X.ExecutionTrackingMode.STAGE_TIMING)


@pytest.fixture(autouse=True)
def _debug_mode_off_again() -> Iterator[None]:
    yield
    wg.config.update("py_debug_mode", False)


def _tracked(ds: Any) -> Any:
    return X.WithOptionsIterDataset(ds, _TRACKED)


def _nodes(iterator: Any) -> dict[int, Node]:
    summary: ExecutionSummary = X.get_execution_summary(iterator)
    return summary.nodes


def _named(iterator: Any, start: str) -> Node:
    (node,) = [node for node in _nodes(iterator).values() if node.name.startswith(start)]
    return node


def _double(element: int) -> int:
    return 2 * element


def _slow(element: int) -> int:
    time.sleep(0.002)
    return element


def test_every_stage_is_there_and_counts_its_elements() -> None:
    ds: Any = wg.MapDataset.range(24).shuffle(seed=1).map(_double).map(abs)
    it = iter(_tracked(ds.to_iter_dataset().filter(lambda x: True).batch(4)))
    assert len(list(it)) == 6
    names = [node.name.partition("(")[0] for node in _nodes(it).values()]
    assert names == [
        "WithOptionsIterDataset",
        "BatchDatasetIterator",
        "FilterDatasetIterator",
        "PrefetchDatasetIterator",
        "MapMapDataset",
        "MapMapDataset",
        "ShuffleMapDataset",
        "RangeMapDataset",
    ]
    assert [node.num_produced_elements for node in _nodes(it).values()] == [6, 6] + [24] * 6
    assert [node.inputs for node in _nodes(it).values()] == [[n] for n in range(1, 8)] + [[]]
    assert [node.id for node in _nodes(it).values()] == list(range(8))


def test_a_node_tells_what_its_elements_look_like_and_what_it_is() -> None:
    ds: Any = wg.MapDataset.source(np.zeros((8, 3), np.float32)).to_iter_dataset().batch(2)
    it = iter(_tracked(ds))
    next(it)
    source, ahead = _named(it, "SourceMapDataset"), _named(it, "PrefetchDatasetIterator")
    assert source.output_spec == "'float32[3]'"
    assert _named(it, "BatchDatasetIterator").output_spec == "'float32[2, 3]'"
    assert ahead.is_prefetch
    assert not source.is_prefetch
    assert ahead.bytes_produced == 2 * 12
    assert ahead.bytes_consumed >= ahead.bytes_produced
    assert [node.is_output for node in _nodes(it).values()] == [True] + [False] * 3


def test_the_slow_stage_has_the_waiting_and_the_shares_make_one() -> None:
    ds: Any = wg.MapDataset.range(40).map(abs).map(_slow).map(abs).to_iter_dataset().batch(4)
    it = iter(_tracked(ds))
    list(it)
    nodes = _nodes(it).values()
    slow = max(nodes, key=lambda node: node.wait_time_ratio)
    assert "_slow" in slow.name
    assert slow.total_processing_time_ns >= 40 * 2_000_000
    assert 0 < slow.min_processing_time_ns <= slow.max_processing_time_ns
    assert sum(node.wait_time_ratio for node in nodes) == pytest.approx(1, abs=0.001)
    assert all(node.wait_time_ratio == 0 for node in nodes if node.is_prefetch)


def test_the_slow_stage_has_the_waiting_where_the_consumer_reads_by_itself() -> None:
    ds: Any = wg.MapDataset.range(20).map(_slow).to_iter_dataset(wg.ReadOptions(num_threads=0))
    it = iter(_tracked(ds.map(abs)))
    list(it)
    assert _named(it, "MapMapDataset").wait_time_ratio > 0.8
    assert _named(it, "Prefetch").total_processing_time_ns >= 20 * 2_000_000


def test_a_stage_that_made_nothing_has_no_least_time() -> None:
    it = iter(_tracked(wg.MapDataset.range(4).to_iter_dataset()))
    assert all(node.min_processing_time_ns == 2**63 - 1 for node in _nodes(it).values())
    assert sum(node.wait_time_ratio for node in _nodes(it).values()) == pytest.approx(1)


def test_workers_are_added_up_and_current() -> None:
    ds: Any = wg.MapDataset.range(20).map(_double).to_iter_dataset().map(abs)
    it = iter(_tracked(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))))
    for _ in range(3):
        next(it)
    assert _named(it, "MapMapDataset").num_produced_elements >= 3
    assert len(list(it)) == 17
    for start in ("ProcessPrefetch", "MapDatasetIterator", "Prefetch", "MapMap", "Range"):
        assert _named(it, start).num_produced_elements == 20, start
    ahead = _named(it, "ProcessPrefetch")
    assert ahead.is_prefetch
    assert ahead.bytes_consumed == ahead.bytes_produced > 0


class _DiesOnce:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, element: int) -> int:
        time.sleep(0.002)  # The elements before it are sent, each in a message.
        if element == 9 and not self._mark.exists():
            self._mark.touch()
            os._exit(1)
        return element


@pytest.mark.parametrize("num_workers", [1, "auto"])
def test_what_a_worker_made_before_it_died_is_counted(tmp_path: Path, num_workers: Any) -> None:
    ds: Any = wg.MapDataset.range(12).to_iter_dataset().map(_DiesOnce(tmp_path / "died"))
    options = wg.MultiprocessingOptions(num_workers=num_workers, max_workers=1)
    it = iter(_tracked(ds.mp_prefetch(options)))
    assert list(it) == list(range(12))
    assert _named(it, "MapDatasetIterator").num_produced_elements >= 12


def test_workers_of_any_number_are_added_up() -> None:
    ds: Any = wg.MapDataset.range(20).map(_double).to_iter_dataset().map(abs)
    it = iter(_tracked(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers="auto"))))
    assert list(it) == [2 * n for n in range(20)]
    for start in ("AutoPrefetch", "MapDatasetIterator", "MapMap", "Range"):
        assert _named(it, start).num_produced_elements == 20, start


def test_threads_and_interleaved_datasets_are_added_up() -> None:
    ds: Any = wg.MapDataset.range(20).map(_double).to_iter_dataset()
    it = iter(_tracked(X.multithread_prefetch(ds, 2, 1)))
    list(it)
    assert _named(it, "MapMapDataset").num_produced_elements == 20

    files = [wg.MapDataset.range(5).map(_double).to_iter_dataset() for _ in range(7)]
    it = iter(_tracked(X.InterleaveIterDataset(files, cycle_length=2)))
    list(it)
    assert _named(it, "MapMapDataset").num_produced_elements == 35


def test_stages_inside_an_interleave_are_listed_in_workers_too() -> None:
    files = [wg.MapDataset.range(5).to_iter_dataset().map(_double) for _ in range(4)]
    ds: Any = X.InterleaveIterDataset(files, cycle_length=2)
    it = iter(_tracked(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))))
    list(it)
    nodes = _nodes(it)
    names = [node.name.partition("(")[0] for node in nodes.values()][2:]
    assert names == [
        "InterleaveDatasetIterator",
        "MapDatasetIterator",
        "PrefetchDatasetIterator",
        "RangeMapDataset",
    ]
    assert [node.num_produced_elements for node in nodes.values()] == [20] * 6
    assert [node.inputs for node in nodes.values()] == [[n] for n in range(1, 6)] + [[]]


def test_datasets_of_the_users_own_are_measured() -> None:
    class Own(wg.MapDataset[Any]):
        def __len__(self) -> int:
            return len(self._parent)

        def __getitem__(self, index: Any) -> Any:
            return self._parent[index]

        def __str__(self) -> str:
            return "Own by index"

    class OwnIterator(wg.DatasetIterator[Any]):
        def __next__(self) -> Any:
            return next(self._parent)

        def get_state(self) -> Any:
            return self._parent.get_state()

        def set_state(self, state: Any) -> None:
            self._parent.set_state(state)

        def __str__(self) -> str:
            return "Own in order"

    class OwnIter(wg.IterDataset[Any]):
        def __iter__(self) -> wg.DatasetIterator[Any]:
            return OwnIterator(self._parent.__iter__())

    ds = OwnIter(Own(wg.MapDataset.range(6)).to_iter_dataset())
    it = iter(_tracked(ds.map(abs)))
    list(it)
    assert _named(it, "Own by index").num_produced_elements == 6
    assert _named(it, "Own in order").num_produced_elements == 6
    assert _named(it, "RangeMapDataset").num_produced_elements == 6


def test_a_loader_can_be_asked() -> None:
    wg.config.update("py_debug_mode", True)
    it = iter(wg.load(range(10), num_epochs=1))
    list(it)
    assert len(_nodes(it)) > 1
    assert _nodes(it)[0].num_produced_elements == 10


def test_without_tracking_there_is_no_summary_and_no_clock() -> None:
    it = iter(wg.MapDataset.range(4).to_iter_dataset().map(abs))
    assert type(it._parent).__name__ == "MapDatasetIterator"
    with pytest.raises(ValueError, match="not tracked"):
        X.get_execution_summary(it)


def test_the_summary_as_a_dict() -> None:
    it = iter(_tracked(wg.MapDataset.range(4).to_iter_dataset()))
    next(it)
    found = X.get_execution_summary(it).as_dict()
    assert set(found["nodes"][0]) == {
        "id",
        "name",
        "inputs",
        "wait_time_ratio",
        "total_processing_time_ns",
        "min_processing_time_ns",
        "max_processing_time_ns",
        "num_produced_elements",
        "output_spec",
        "is_output",
        "is_prefetch",
        "bytes_consumed",
        "bytes_produced",
    }


def test_debug_mode_logs_a_table_while_elements_flow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracked_output, "_LOG_EVERY_S", 0.0)
    wg.config.update("py_debug_mode", True)
    with caplog.at_level(logging.INFO, "wholegrain"):
        next(iter(wg.MapDataset.range(4).map(_double)))
    assert "percent wait time" in caplog.text
    assert "MapMapDataset" in caplog.text


def test_where_nothing_is_logged_it_is_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracked_output, "_LOG_EVERY_S", 0.0)
    wg.config.update("py_debug_mode", True)
    next(iter(wg.MapDataset.range(4)))
    assert "percent wait time" in capfd.readouterr().err


def _table(*nodes: Node) -> str:
    return pretty_format_summary(ExecutionSummary({node.id: node for node in nodes}))


def test_the_table_shows_times_and_sizes_as_people_read_them() -> None:
    table = _table(
        Node(0, "a" * 200, [1], 0.1388, 7_890_000_000, 999, 1_230, 10),
        Node(1, "ahead", [2], 0.0, 4_560_000, 1, 2, 1, is_prefetch=True, bytes_consumed=3196),
        Node(2, "source", [], 0.8612),
    )
    for text in ("86.12%", "13.88%", "7.89s", "999ns", "1.23us", "4.56ms", "3.12 KiB", "N/A"):
        assert text in table
    assert table.index("source") < table.index("aaa") < table.index("ahead")
    assert "reading is the bottleneck" in table
    assert max(len(line) for line in table.splitlines() if "aaa" in line) < 230
    assert sum("aaa" in line for line in table.splitlines()) == 5
    small = _table(Node(0, "ahead", [], 1.0, is_prefetch=True, bytes_consumed=512))
    assert "512 bytes" in small


def _outcomes(it: Any) -> list[Any]:
    outcomes: list[Any] = [it.get_state()]
    while len(outcomes) < 100:
        try:
            outcomes.append(next(it))
        except StopIteration:
            outcomes.append(it.get_state())
            break
        except Exception as error:
            outcomes.append((type(error).__name__, str(error)))
        outcomes.append(it.get_state())
    return outcomes


@settings(max_examples=60)
@given(iter_datasets(failing=True))
def test_elements_order_states_and_errors_are_those_of_a_run_that_nobody_watches(ds: Any) -> None:
    plain, watched = iter(ds), iter(_tracked(ds))
    expected, found = _outcomes(plain), _outcomes(watched)
    assert difference(expected, found) is None
    if len(expected) > 2:
        state = expected[len(expected) // 2 // 2 * 2]
        plain.set_state(state)
        watched.set_state(state)
        assert difference(_outcomes(plain), _outcomes(watched)) is None
    X.get_execution_summary(watched)


@pytest.mark.parametrize("seed", range(4))
def test_a_watched_run_with_workers_gives_the_same(seed: int) -> None:
    ds = random_pipeline(seed, workers=2)
    expected = _outcomes(iter(ds))
    wg.config.update("py_debug_mode", True)
    watched = iter(ds)
    assert difference(expected, _outcomes(watched)) is None
    watched.set_state(expected[2])
    assert difference(expected[2:30], _outcomes(watched)[: len(expected[2:30])]) is None
    assert sum(node.is_prefetch for node in _nodes(watched).values()) >= 2
