"""What this process may use of the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.processes import SOURCE
from wholegrain._read import machine


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
    block = bytearray(64 << 20)
    after = machine.private_memory(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > 32 << 20
    assert len(block)
    assert machine.private_memory(2**31 - 1) is None
