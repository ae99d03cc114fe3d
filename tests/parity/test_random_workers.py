"""Random pipelines give the same in worker processes of Grain and of wholegrain.

A worker of Grain takes a second to start, so there are few pipelines, always the same ones; and
Grain needs a program with a main guard: `grain_workers.py`, once for each number of workers.
"""

import copy
import functools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

import wholegrain as wg
from tests.parity import grain_workers, pipelines
from tests.parity.grain_workers import END, Job, Outcome
from tests.parity.recipes import build
from wholegrain.testing import difference

pytest.importorskip("grain")

_ROOT = Path(__file__).parents[2]
_PIPELINES = {1: 4, 2: 4, 3: 3}
"""How many pipelines for each number of workers."""
if os.environ.get("WHOLEGRAIN_TEST_EIGHT_WORKERS"):  # Takes minutes.
    _PIPELINES[8] = 3
# Of these, Grain's states do not say where they stand: see `test_random_pipelines.py`.
_NOT_RESTORED = ("rebatch", "cache")


@functools.cache
def _drafts() -> list[pipelines.Draft]:
    """Draw pipelines: different ones, and the same in every run."""
    found: dict[str, pipelines.Draft] = {}

    @settings(max_examples=150, derandomize=True, database=None, phases=[Phase.generate])
    @given(pipelines.iter_drafts())
    def collect(draft: pipelines.Draft) -> None:
        operations = pipelines._ops(draft.recipe)
        suited = pipelines._can_be_cut(draft) and operations.isdisjoint(_NOT_RESTORED)
        if suited and len(operations) >= 4:
            found.setdefault(str(sorted(operations)), draft)

    collect()
    drafts = list(found.values())
    assert len(drafts) >= sum(_PIPELINES.values())
    return drafts


def _jobs(workers: int) -> list[Job]:
    """Return the pipelines for a number of workers, without states."""
    first = sum(count for other, count in _PIPELINES.items() if other < workers)
    jobs = []
    for number, draft in enumerate(_drafts()[first : first + _PIPELINES[workers]]):
        # Cutting the sources changes lengths and indices, of which Grain does not always know.
        can_cut_sources = pipelines._ops(draft.recipe) <= pipelines._ONE_TO_ONE
        can_cut_sources &= not pipelines._draws_by_index(draft.recipe)
        jobs.append(Job(draft.recipe, workers, can_cut_sources and number % 2 == 0))
    return jobs


def _run_in_grain(jobs: list[Job], folder: Path) -> list[Outcome]:
    (folder / "jobs").write_bytes(pickle.dumps(jobs))
    module = "tests.parity.grain_workers"
    subprocess.run(
        [sys.executable, "-m", module, str(folder / "jobs"), str(folder / "results")],
        cwd=_ROOT,
        check=True,
        timeout=900,
        capture_output=True,
    )
    return [Outcome(*fields) for fields in pickle.loads((folder / "results").read_bytes())]


def _assert_same(expected: Any, found: Any, what: str) -> None:
    where = difference(expected, found, key_order=True)
    assert where is None, f"{what}: {where}\nGrain: {expected}\nwholegrain: {found}"


@pytest.mark.parametrize("workers", list(_PIPELINES))
def test_workers_give_the_same_and_restore_each_others_states(workers: int, tmp_path: Path) -> None:
    ours = []
    jobs = []
    for number, job in enumerate(_jobs(workers)):
        it = grain_workers.open_job(wg, job)
        elements, states = grain_workers.run(it)
        it.close()
        step = (5 * number + 3) % (len(elements) + 1)
        ours.append((elements, states))
        state = json.loads(json.dumps(states[step]))
        jobs.append(Job(job.recipe, workers, job.sequential, state, step))

    for job, outcome, (elements, states) in zip(
        jobs, _run_in_grain(jobs, tmp_path), ours, strict=True
    ):
        what = f"{job.recipe}, {workers} workers, sequential_slice={job.sequential}"
        _assert_same(outcome.elements, elements, f"{what}: elements")
        _assert_same(outcome.states, states, f"{what}: states")
        _assert_same(
            outcome.restored, elements[job.step :], f"{what}: Grain, from our state {job.step}"
        )
        _check_restores(job, outcome, what)
        _check_lanes(job, outcome, what)


def _check_lanes(job: Job, outcome: Outcome, what: str) -> None:
    """Run the lanes of Grain's workers in this process and in one worker."""
    for processes in (0, 1):
        options = wg.MultiprocessingOptions(num_workers=processes, lanes=job.workers)
        ds = build(wg, job.recipe)
        it = iter(ds.mp_prefetch(options, sequential_slice=job.sequential))
        what = f"{what}, as lanes in {processes} processes"
        elements, states = grain_workers.run(it)
        _assert_same(outcome.elements, elements, f"{what}: elements")
        _assert_same(outcome.states, states, f"{what}: states")
        it.set_state(copy.deepcopy(outcome.states[job.step]))
        found = grain_workers.rest(it, job.step)
        _assert_same(outcome.elements[job.step :], found, f"{what}: from Grain's state {job.step}")
        it.close()


def _check_restores(job: Job, outcome: Outcome, what: str) -> None:
    """Go on from Grain's states, in one iterator and in new ones."""
    running = grain_workers.open_job(wg, job)
    for step in (job.step, 0, len(outcome.elements), job.step // 2):
        its = [running] if step != job.step else [running, grain_workers.open_job(wg, job)]
        for it in its:
            it.set_state(copy.deepcopy(outcome.states[step]))
            _assert_same(outcome.states[step], it.get_state(), f"{what}: state {step}, restored")
            found = grain_workers.rest(it, step)
            _assert_same(outcome.elements[step:], found, f"{what}: from Grain's state {step}")
            if step + len(found) < grain_workers.MOST_ELEMENTS:
                assert next(it, END) == END
    for it in [running, *its]:
        it.close()
