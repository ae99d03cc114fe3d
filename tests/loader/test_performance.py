"""How many workers and how much read-ahead a budget of memory allows."""

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.experimental import PerformanceConfig, pick_performance_config

_MIB = 1 << 20


class _Blocks:
    """Elements of a given size."""

    def __init__(self, count: int, nbytes: int) -> None:
        self._count = count
        self._nbytes = nbytes

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        half = np.zeros(self._nbytes // 2, np.uint8)
        return {"a": half, "b": [half, (half[:0],)]}


def _pick(ds: Any, **arguments: Any) -> tuple[int, int]:
    config = pick_performance_config(
        ds, **{"ram_budget_mb": 1024, "max_workers": None, "max_buffer_size": None, **arguments}
    )
    assert config.multiprocessing_options is not None
    assert config.read_options is not None
    assert config.multiprocessing_options == wg.MultiprocessingOptions(
        num_workers=config.multiprocessing_options.num_workers
    )
    assert config.read_options.num_threads == 16
    workers = config.multiprocessing_options.num_workers
    buffered = config.read_options.prefetch_buffer_size
    assert workers != "auto"
    return workers, buffered


def test_as_many_workers_and_elements_as_fit() -> None:
    ds = wg.MapDataset.source(_Blocks(10, _MIB)).to_iter_dataset()
    assert _pick(ds, ram_budget_mb=7, max_workers=100) == (7, 7)
    assert _pick(ds, ram_budget_mb=7, max_workers=3, max_buffer_size=2) == (3, 2)
    assert _pick(ds, ram_budget_mb=5000, max_workers=9) == (9, 1000)
    assert _pick(ds, ram_budget_mb=5000)[0] == os.cpu_count()


def test_the_elements_of_the_pipeline_and_those_that_are_read_count_by_themselves() -> None:
    ds: Any = wg.MapDataset.source(_Blocks(40, _MIB)).to_iter_dataset().batch(4)
    assert _pick(ds, ram_budget_mb=16, max_workers=100) == (4, 16)
    two = [wg.MapDataset.source(_Blocks(40, _MIB)).to_iter_dataset() for _ in range(2)]
    assert _pick(wg.IterDataset.mix(two), ram_budget_mb=16, max_workers=100) == (16, 8)


def test_a_random_access_dataset_reads_as_far_as_allowed() -> None:
    ds = wg.MapDataset.source(_Blocks(10, _MIB))
    assert _pick(ds, ram_budget_mb=7, max_workers=100) == (7, 1000)


def test_there_is_room_for_one_whatever_the_budget() -> None:
    ds = wg.MapDataset.source(_Blocks(10, 4 * _MIB)).to_iter_dataset()
    assert _pick(ds, ram_budget_mb=1, max_workers=100) == (1, 1)


def test_too_few_elements_to_judge_from_allow_the_most(caplog: pytest.LogCaptureFixture) -> None:
    ds = wg.MapDataset.source(_Blocks(3, _MIB)).to_iter_dataset()
    assert _pick(ds, ram_budget_mb=1, max_workers=6, max_buffer_size=50) == (6, 50)
    assert "only 3 elements" in caplog.text
    assert _pick(ds, ram_budget_mb=1, max_workers=6, samples_to_check=3) == (1, 1)


def test_without_a_budget_it_is_the_memory_at_hand() -> None:
    ds = wg.MapDataset.source(_Blocks(10, 1024)).to_iter_dataset()
    workers, buffer_size = _pick(ds, ram_budget_mb=None, max_workers=2)
    assert workers == 2
    assert 1 <= buffer_size <= 1000


def test_the_result_can_be_stored() -> None:
    config = PerformanceConfig(wg.MultiprocessingOptions(3), wg.ReadOptions(2, 4))
    assert dataclasses.asdict(config) == {
        "multiprocessing_options": {
            "num_workers": 3,
            "per_worker_buffer_size": 1,
            "enable_profiling": False,
            "max_workers": None,
            "max_memory_bytes": None,
            "backend": None,
            "lanes": None,
        },
        "read_options": {"num_threads": 2, "prefetch_buffer_size": 4},
    }
    assert PerformanceConfig() == PerformanceConfig(None, None)


def test_the_budget_and_the_limits_have_to_be_named() -> None:
    ds: Any = wg.MapDataset.range(9)
    with pytest.raises(TypeError):
        pick_performance_config(ds)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        pick_performance_config(ds, 1, 1, 1)  # type: ignore[call-arg]


@settings(max_examples=30)
@given(
    nbytes=st.integers(2, 3 * _MIB),
    budget=st.integers(4, 200),
    max_workers=st.none() | st.integers(1, 50),
    max_buffer_size=st.none() | st.integers(1, 50),
    samples=st.integers(1, 8),
    batch=st.booleans(),
)
def test_the_suggestion_is_grains(
    nbytes: int,
    budget: int,
    max_workers: int | None,
    max_buffer_size: int | None,
    samples: int,
    batch: bool,
) -> None:
    grain = pytest.importorskip("grain")

    def suggested(package: Any) -> Any:
        ds = package.MapDataset.source(_Blocks(10, nbytes)).to_iter_dataset()
        config = package.experimental.pick_performance_config(
            ds=ds.batch(2, drop_remainder=True) if batch else ds,
            ram_budget_mb=budget,
            max_workers=max_workers,
            max_buffer_size=max_buffer_size,
            samples_to_check=samples,
        )
        return (
            # Where not even one element fits, Grain suggests none.
            max(1, config.multiprocessing_options.num_workers),
            max(1, config.read_options.prefetch_buffer_size),
            config.read_options.num_threads,
        )

    assert suggested(grain) == suggested(wg)
