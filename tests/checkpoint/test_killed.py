"""Jobs that are killed, and go on in a new process as if nothing had happened."""

import itertools
import json
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.random_pipelines import random_pipeline
from wholegrain._core.difference import difference

# Not imported here, but by the jobs.
pytestmark = pytest.mark.skipif(find_spec("orbax") is None, reason="needs Orbax")

STEPS = 60  # of a job

# Few jobs with several pipelines each: importing Orbax takes longer than all the rest.
PIPELINES_OF_A_JOB = 9
KILLS = 2


def run(folder: Path, seeds: list[int], workers: list[int], until: int | None, delay: float) -> str:
    """Run a job, up to its end or a moment after some step; return what it printed."""
    command = [sys.executable, "-m", "tests.checkpoint.victim", str(folder)]
    with open(folder / "log", "ab") as log:
        job = subprocess.Popen(
            [*command, str(STEPS), json.dumps(seeds), json.dumps(workers)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert job.stdout is not None
        try:
            said = ""
            for line in job.stdout:
                said = line.strip()
                if said == str(until):
                    time.sleep(delay)
                    break
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()
            job.stdout.close()
    return said


def noted(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the steps that the jobs took, some of them more than once, and their elements."""
    for file in folder.glob("elements_*"):
        with open(file, "rb") as notes:
            while True:
                try:
                    yield pickle.load(notes)
                except (EOFError, pickle.UnpicklingError):  # Killed while it wrote.
                    break


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_that_is_killed_goes_on_as_if_nothing_had_happened(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    seeds = choose.sample(range(10**6), PIPELINES_OF_A_JOB)
    workers = list(itertools.islice(itertools.cycle([0, 1, 2]), PIPELINES_OF_A_JOB))
    step = 0
    for _ in range(KILLS):
        step += choose.randrange(3, 20)
        run(tmp_path, seeds, workers, step, choose.random() * 0.1)
    said = run(tmp_path, seeds, workers, None, 0)
    assert said == "done", (tmp_path / "log").read_text()

    expected = {
        f"pipeline_{one}": elements_of(random_pipeline(one, count))
        for one, count in zip(seeds, workers, strict=True)
    }
    steps = set()
    for at, found in noted(tmp_path):
        steps.add(at)
        for name, element in found.items():
            where = difference(expected[name][at], element)
            assert where is None, f"{name} at step {at}: {where}"
    assert steps == set(range(STEPS))


def elements_of(pipeline: Any) -> list[Any]:
    it = iter(pipeline)
    elements = [next(it, "end") for _ in range(STEPS)]
    it.close()
    return elements
