"""`on_error` in runs that are killed, interrupted, or lose a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.failing import Broken
from tests.stress.failing_victim import BAD, pipeline

_ROOT = Path(__file__).parent.parent.parent


_RUNS: list[tuple[str, Any]] = [("skip", 2), ("replace", "auto")]
if os.environ.get("WHOLEGRAIN_TEST_KILLS"):
    _RUNS += [("skip", 0), ("skip", "auto"), ("replace", 2)]


@pytest.mark.parametrize(("policy", "workers"), _RUNS)
def test_a_run_that_is_killed_goes_on_with_the_same_elements_and_log(
    policy: str, workers: Any, tmp_path: Path
) -> None:
    for stop in (90, 1000):
        command = [sys.executable, "-m", "tests.stress.failing_victim", str(tmp_path), policy]
        command += [str(workers), str(stop)]
        subprocess.run(command, cwd=_ROOT, check=False, timeout=60)
    lines = (tmp_path / "read.jsonl").read_text().splitlines()
    whole = iter(pipeline(policy, 0, tmp_path / "other.jsonl"))
    assert [json.loads(line)["element"] for line in lines] == list(whole)
    entries = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert sorted(entry["index"] for entry in entries) == sorted(BAD)
    assert len(whole.errors()) == len(BAD)


def _die_once(folder: str) -> Any:
    def use(element: int) -> int:
        mark = Path(folder) / "died"
        if element == 120 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    return use


@pytest.mark.parametrize("workers", [2, "auto"])
def test_a_worker_that_dies_changes_neither_elements_nor_counts(
    workers: Any, tmp_path: Path
) -> None:
    broken = frozenset(range(5, 200, 11))
    ds = wg.MapDataset.source(Broken(200, broken)).map(_die_once(str(tmp_path)))
    ds = ds.on_error("skip", budget=len(broken))
    options = wg.MultiprocessingOptions(num_workers=workers)
    it = iter(ds.to_iter_dataset().mp_prefetch(options))
    assert list(it) == [x for x in range(200) if x not in broken]
    assert [record.index for record in it.errors()] == sorted(broken)
    assert it.report().failures == len(broken)


class _Interruption(Exception):
    pass


def test_an_interruption_is_never_tolerated_and_counts_stay_exact() -> None:
    broken = frozenset(range(5, 400, 11))
    calls = 0

    def use(element: int) -> int:
        nonlocal calls
        calls += 1
        if calls in (30, 77, 200):
            signal.raise_signal(signal.SIGUSR1)
        return element

    def handler(*_: Any) -> None:
        raise _Interruption

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        ds = wg.MapDataset.source(Broken(400, broken)).map(use)
        ds = ds.on_error("skip", budget=len(broken))
        it = iter(ds.to_iter_dataset(wg.ReadOptions(num_threads=0)))
        got, interruptions = [], 0
        while True:
            try:
                got.append(next(it))
            except StopIteration:
                break
            except _Interruption:
                interruptions += 1
        assert interruptions == 3
        assert got == [x for x in range(400) if x not in broken]
        assert [record.index for record in it.errors()] == sorted(broken)
        assert it.report().failures == len(broken)
    finally:
        signal.signal(signal.SIGUSR1, before)
