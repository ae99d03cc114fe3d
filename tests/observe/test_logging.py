"""Lines that users see in their logs."""

import logging
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import wholegrain as wg
from wholegrain._observe import tracked_clock

X: Any = wg.experimental


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


_WORKERS = """
import logging
import wholegrain as wg

def loud(element):
    logging.getLogger("mine").warning("element %d", element)
    return element

def configure(index, count):
    logging.basicConfig(format="of the user: %(message)s")

ds = wg.MapDataset.range(4).map(loud).to_iter_dataset()
"""


def test_records_of_workers_begin_with_their_number() -> None:
    said = _run(_WORKERS + "list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))")
    assert "[worker 0] element 0\n" in said
    assert "[worker 1] element 1\n" in said


def test_a_format_that_the_program_sets_in_workers_counts() -> None:
    options = "wg.MultiprocessingOptions(num_workers=1)"
    said = _run(_WORKERS + f"list(ds.mp_prefetch({options}, worker_init_fn=configure))")
    assert "of the user: element 0\n" in said
    assert "[worker" not in said


def test_threads_that_cannot_all_read_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        wg.ReadOptions(num_threads=977, prefetch_buffer_size=3)
    assert len(caplog.records) == 1
    assert "num_threads=977" in caplog.text
    wg.ReadOptions(num_threads=16, prefetch_buffer_size=0)
    wg.ReadOptions()
    assert len(caplog.records) == 1


def test_sizes_that_cannot_be_told_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Opaque:
        pass

    tracked_clock._warn_of_type.cache_clear()
    options = X.DatasetOptions(execution_tracking_mode=X.ExecutionTrackingMode.STAGE_TIMING)
    ds = wg.MapDataset.range(4).map(lambda _: Opaque()).to_iter_dataset()
    for _ in range(2):
        list(X.WithOptionsIterDataset(ds, options))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Opaque" in caplog.text
