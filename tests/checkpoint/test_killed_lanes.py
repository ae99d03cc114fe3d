"""Jobs with lanes that are killed, and go on with another number of hosts and of workers."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.lane_job import END, Job
from wholegrain._core import tree
from wholegrain._core.difference import difference

KILLS = 3
# Of each job there are four processes. More jobs: WHOLEGRAIN_TEST_LANE_JOBS=100
JOBS = int(os.environ.get("WHOLEGRAIN_TEST_LANE_JOBS", "2"))
WORKERS = (0, 0, 1, 2, 3, "auto")


def run(folder: Path, job: Job, until: int | None, delay: float) -> str:
    """Run a job to its end, or kill it a moment after some step; return what it printed last."""
    command = [sys.executable, "-m", "tests.checkpoint.lane_job", str(folder), json.dumps(job)]
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        said = ""
        try:
            for line in process.stdout:
                said = line.strip()
                if until is not None and said != END and int(said) >= until:
                    time.sleep(delay)
                    break
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
    return said


def noted(folder: Path) -> Iterator[tuple[int, Any]]:
    """Yield the steps that the jobs took, some of them more than once, and their global batches."""
    for file in folder.glob("notes_*"):
        with open(file, "rb") as notes:
            while True:
                try:
                    step, batches = pickle.load(notes)
                except (EOFError, pickle.UnpicklingError):  # Killed while it wrote.
                    break
                yield step, batches if batches == END else joined(batches)


def joined(batches: list[Any]) -> Any:
    return tree.zip_leaves(np.concatenate, batches)


def global_batches(job: Job, folder: Path) -> list[Any]:
    """Return the epoch on one host without workers."""
    (it,) = job._replace(hosts=1, workers=0).open(folder)
    return [*it, END]


@pytest.mark.parametrize("number", range(JOBS))
def test_hosts_that_are_killed_go_on_with_the_same_global_batches_elsewhere(
    number: int, tmp_path: Path
) -> None:
    choose = random.Random(number)
    seed, remainder = choose.randrange(10**6), choose.choice(["drop", "pad"])
    job = Job(seed, remainder, 1, 0)
    expected: list[Any] = []
    while len(expected) < 2:  # A pipeline with steps to be killed in.
        seed += 1
        job = job._replace(seed=seed)
        expected = global_batches(job, tmp_path)
    places = [job._replace(hosts=choose.choice([1, 2, 4, 8]), workers=choose.choice(WORKERS))
              for _ in range(KILLS + 1)]  # fmt: skip
    if JOBS <= 2:  # Starting eight hosts with three workers each takes long.
        places = [one._replace(hosts=min(one.hosts, 4)) for one in places]
    for place in places[:-1]:
        run(tmp_path, place, choose.randrange(len(expected)), choose.random() * 0.02)
    assert run(tmp_path, places[-1], None, 0) == END, (tmp_path / "log").read_text()

    steps = set()
    for step, batch in noted(tmp_path):
        steps.add(step)
        where = difference(expected[step], batch)
        assert where is None, f"{places}, step {step}: {where}"
    assert steps == set(range(len(expected)))
