"""The graph of a pipeline, logged at its first element."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import wholegrain as wg

X: Any = wg.experimental


@pytest.fixture(autouse=True)
def _drawn() -> Iterator[None]:
    wg.config.update("py_dataset_visualization_output_dir", "")
    yield
    wg.config.update("py_dataset_visualization_output_dir", None)


def _log(caplog: pytest.LogCaptureFixture, ds: Any, elements: int = 3) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, "wholegrain"):
        it = iter(ds)
        assert not caplog.messages
        for _ in range(elements):
            next(it)
    return caplog.messages


def test_one_graph_per_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    ds: Any = wg.MapDataset.range(20).shuffle(seed=1).to_iter_dataset().map(str).batch(2)
    (text,) = _log(caplog, ds)
    header, *lines = text.splitlines()
    assert "graph" in header
    expected = """
RangeMapDataset(start=0, stop=20, step=1)
  ││
  ││
  ││
  ╲╱
'int[]'

  ││
  ││  ShuffleMapDataset
  ││
  ╲╱
'int[]'

  ││
  ││  PrefetchDatasetIterator(read_options=ReadOptions(num_threads=16, prefetch_buffer_size=500), \
allow_nones=False)
  ││
  ╲╱
'int[]'

  ││
  ││  MapDatasetIterator(transform=str)
  ││
  ╲╱
'str[]'

  ││
  ││  BatchDatasetIterator(batch_size=2, drop_remainder=False)
  ││
  ╲╱
"""  # noqa: RUF001
    assert [line.rstrip() for line in lines][: expected.count("\n")] == expected.splitlines()


def test_stages_in_workers_are_drawn(caplog: pytest.LogCaptureFixture) -> None:
    ds = wg.MapDataset.range(20).map(abs).to_iter_dataset()
    (text,) = _log(caplog, ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    assert "MapMapDataset(transform=abs)" in text
    assert "ProcessPrefetchIterDataset" in text
    assert "?" not in text


def test_of_several_inputs_the_first_is_drawn(caplog: pytest.LogCaptureFixture) -> None:
    parts = [wg.MapDataset.range(4).map(abs), wg.MapDataset.range(4).map(str)]
    (text,) = _log(caplog, X.ZipMapDataset(parts))
    assert "WARNING" in text
    assert "transform=abs" in text
    assert "transform=str" not in text


def test_it_is_printed_where_nothing_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    next(iter(wg.MapDataset.range(4)))
    assert "RangeMapDataset" in capfd.readouterr().err


def test_directories_are_refused_at_the_first_element() -> None:
    wg.config.update("py_dataset_visualization_output_dir", "/somewhere")
    it: Any = iter(wg.MapDataset.range(4).to_iter_dataset().batch(2))
    with pytest.raises(NotImplementedError, match="/somewhere"):
        next(it)
