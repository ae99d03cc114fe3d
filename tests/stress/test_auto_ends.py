"""Workers in a number that is found out end with the program, quietly, however it ends."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.workers.processes import SOURCE, descendants, run_python, wait_until_gone

# Without a main guard, and with everything defined in the script itself.
_SCRIPT = """
import gc, os, sys, threading, time
import numpy as np
import wholegrain as wg

def array(number):
    return np.full(50, number)

def auto(length=10_000, function=array):
    options = wg.MultiprocessingOptions(num_workers="auto", max_workers=3)
    return wg.MapDataset.range(length).map(function).to_iter_dataset().mp_prefetch(options)
"""


def _script(body: str) -> str:
    return _SCRIPT + textwrap.dedent(body)


_LEFT = "for element in auto(): break"
_IN_A_THREAD = """
    it = iter(auto(function=lambda number: time.sleep(1000)))
    threading.Thread(target=next, args=(it,), daemon=True).start()
    time.sleep(0.1)
"""
_RUN_AHEAD = """
    ds = wg.experimental.ThreadPrefetchIterDataset(auto(), prefetch_buffer_size=3)
    it = iter(ds)
    next(it)
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (_LEFT, 0),
        ("it = iter(auto()); kept = next(it)", 0),
        ("it = iter(auto()); it.set_worker_count(3); next(it); sys.exit(3)", 3),
        ("it = iter(auto()); next(it); os._exit(4)", 4),
        ("it = iter(auto()); it.start_prefetch()", 0),
        (_IN_A_THREAD, 0),
        (_RUN_AHEAD, 0),
        (_RUN_AHEAD + "    it.close()", 0),
    ],
)
def test_leaving_is_quiet_and_complete(body: str, code: int) -> None:
    # `run_python` waits for the end of the output, which every process of the script holds open.
    result = run_python("-X", "dev", "-c", _script(body))
    assert (result.stdout, result.stderr, result.returncode) == ("", "", code)


_ALL = "print([int(element[0]) for element in auto(30)] == list(range(30)))"


@pytest.mark.parametrize(
    "environ",
    [
        {"WHOLEGRAIN_WORKER_START": "spawn"},
        {"WHOLEGRAIN_SHARED_MEMORY": "named"},
        {"WHOLEGRAIN_SHARED_MEMORY": "unlinked"},
    ],
    ids=lambda environ: "=".join(*environ.items()),
)
def test_it_works_without_the_means_of_linux(environ: dict[str, str]) -> None:
    result = run_python("-X", "dev", "-c", _script(_ALL), environ=environ)
    assert (result.stdout, result.stderr, result.returncode) == ("True\n", "", 0)


def test_iterators_that_are_left_early_leave_nothing_behind() -> None:
    body = """
        def count():
            gc.collect()
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        def leave():
            it = iter(auto())
            next(it)

        for _ in range(3):
            leave()
        before = count()
        for _ in range(30):
            leave()
        print(count() == before)
    """
    result = run_python("-c", _script(body))
    assert (result.stdout, result.stderr, result.returncode) == ("True\n", "", 0)


def test_workers_end_with_a_program_that_is_killed() -> None:
    body = """
        it = iter(auto())
        it.set_worker_count(2)
        next(it)
        print("ready", flush=True)
        time.sleep(1000)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _script(body)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            assert process.stdout.readline() == "ready\n"
            started = descendants(process.pid)
            assert len(started) >= 3
        finally:
            process.kill()
    wait_until_gone(started)
