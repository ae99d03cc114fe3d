"""What this process may use of the machine."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.workers.processes import SOURCE
from wholegrain._graph import run
from wholegrain._read import machine
from wholegrain._read.reader_count import ReaderCount


def test_there_is_at_least_one_processor_and_some_memory() -> None:
    assert 1 <= machine.available_cpus() <= (os.cpu_count() or 1)
    assert machine.available_memory() > 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_processors_that_are_not_for_this_process_do_not_count() -> None:
    program = (
        "import os; from wholegrain._read import machine;"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "print(machine.available_cpus())"
    )
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_the_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "memory.stat").write_text("anon 300000\ninactive_file 50000\n")
    assert machine.available_cpus() == 1
    assert machine.available_memory() == 650_000


def test_the_memory_of_a_container_bounds_the_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    physical = machine.total_memory()
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine.total_memory() == 1_000_000 < physical


def test_a_container_without_limits_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited = machine.available_cpus()
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.available_cpus() >= unlimited
    assert machine.available_memory() > 1 << 20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_the_memory_of_a_process() -> None:
    before = machine.private_memory(os.getpid())
    block = b"x" * (64 << 20)  # Memory of zeros may be there only once it is written to.
    after = machine.private_memory(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > 32 << 20
    assert len(block)
    assert machine.private_memory(2**31 - 1) is None


@pytest.fixture
def quota_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that may use two of the 64 processors of a machine."""
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    (tmp_path / "cpu.max").write_text("200000 100000\n")


def test_the_quota_of_a_container_bounds_the_threads_that_compute(quota_of_two: None) -> None:
    assert ReaderCount(16).most_computing == 2


@pytest.mark.parametrize(("workers", "threads_read"), [(1, True), (2, False)])
def test_workers_that_fill_the_quota_of_a_container_read_for_themselves(
    workers: int, threads_read: bool, quota_of_two: None
) -> None:
    readers = set()

    def slow(_: int) -> Any:
        readers.add(threading.current_thread())
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        return np.zeros(1 << 16, np.uint8)  # Small elements are left to a thread.

    ds: Any = wg.MapDataset.range(60).map(slow).to_iter_dataset()
    with run.entered(run.RunContext(worker_index=0, worker_count=workers)):
        it = ds.open()
    assert sum(1 for _ in it) == 60
    assert (readers != {threading.current_thread()}) == threads_read
