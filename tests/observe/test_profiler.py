"""What a trace of the jax profiler shows of a pipeline."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("jax.profiler")

_EVENTS = """
import glob, json, sys
import jax
import wholegrain as wg

def events(folder):
    found = {}
    for path in glob.glob(folder + "/**/*.xplane.pb", recursive=True):
        for plane in jax.profiler.ProfileData.from_file(path).planes:
            for line in plane.lines:
                for event in line.events:
                    stats = dict(event.stats)
                    if "_ipl_stage_cat" in stats:
                        found.setdefault(event.name, []).append(stats)
    return found

class Numbers:
    def __len__(self):
        return 50
    def __getitem__(self, index):
        return index

ds = wg.MapDataset.source(Numbers()).map(abs).to_iter_dataset().batch(5)
folder = sys.argv[1]
"""


def _run(program: str, folder: Path) -> None:
    # In a process of its own: a program has one profiler.
    done = subprocess.run(
        [sys.executable, "-c", _EVENTS + textwrap.dedent(program), str(folder)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_stage_of_a_pipeline_that_is_opened_in_a_trace(tmp_path: Path) -> None:
    _run(
        """
        with jax.profiler.trace(folder):
            assert len(list(ds)) == 10
        found = events(folder)
        (batch, *_) = found["BatchDatasetIterator.__next__"]
        assert len(found["BatchDatasetIterator.__next__"]) >= 10
        assert batch["_ipl_stage_name"].startswith("BatchDatasetIterator(batch_size=5")
        assert batch["_ipl_stage_cat"] == "preprocessing"
        assert batch["_ipl_stage_id"] == 0
        assert found["PrefetchDatasetIterator.__next__"][0]["_ipl_stage_cat"] == "prefetch"
        assert found["MapMapDataset.__getitem__"][0]["_ipl_stage_cat"] == "preprocessing"
        assert found["SourceMapDataset.__getitem__"][0]["_ipl_stage_cat"] == "read"
        ids = {stats["_ipl_stage_id"] for name in found for stats in found[name]}
        assert ids == {0, 1, 2, 3}
        """,
        tmp_path,
    )


def test_reads_of_a_pipeline_that_was_opened_before(tmp_path: Path) -> None:
    _run(
        """
        it = iter(ds)
        next(it)
        assert type(it._parent).__name__ == "BatchDatasetIterator"
        with jax.profiler.trace(folder):
            assert len(list(it)) == 9
        (read, *_) = events(folder)["Prefetch._getitem"]
        assert read["_ipl_dataset_name"] == "MapMapDataset(transform=abs)"
        assert read["_ipl_dataset_index"] > 0
        (wait, *_) = events(folder)["PrefetchDatasetIterator._next_chunk"]
        assert wait["_ipl_stage_cat"] == "prefetch"
        """,
        tmp_path,
    )


def test_waits_for_workers_that_were_started_before(tmp_path: Path) -> None:
    _run(
        """
        it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))
        next(it)
        with jax.profiler.trace(folder):
            list(it)
        (wait, *_) = events(folder)["ProcessPrefetchDatasetIterator._receive"]
        assert wait["_ipl_stage_name"] == "Worker 0 of 1"
        """,
        tmp_path,
    )


def test_without_a_trace_there_is_no_clock(tmp_path: Path) -> None:
    _run(
        """
        assert type(iter(ds)._parent).__name__ == "BatchDatasetIterator"
        assert "wholegrain._graph.tracked_output" not in sys.modules
        """,
        tmp_path,
    )


def test_workers_serve_a_profiler_if_asked_to(tmp_path: Path) -> None:
    pytest.importorskip("jax").profiler.register_subprocess  # noqa: B018
    _run(
        """
        wg.config.update("enable_multiprocess_worker_profiling", True)
        it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
        assert len(list(it)) == 10
        it._parent._look_at = 0.0
        it._parent._after_element()
        assert it._parent._registry.count == 2
        it.close()
        """,
        tmp_path,
    )
