"""Runs pipelines in Grain's worker processes: a program, since these import the main script.

    python -m tests.parity.grain_workers JOBS RESULTS

Both are files with pickles: a list of `Job`, and the fields of an `Outcome` for each.
"""

import copy
import dataclasses
import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.parity.recipes import Recipe, build

MOST_ELEMENTS = 14
END = "the end"


@dataclasses.dataclass(frozen=True)
class Job:
    """A pipeline, how it is run, and a state of it from which it is to go on as well."""

    recipe: Recipe
    workers: int
    sequential: bool
    state: Any = None
    step: int = 0
    """How many elements were read when the state was taken."""


class Outcome(NamedTuple):
    """What the pipeline gave: from the start, and from the state of the job on."""

    elements: list[Any]
    states: list[Any]
    """Before each element, after the last, and once more behind the end."""
    restored: list[Any]


def open_job(package: Any, job: Job) -> Any:
    """Open the pipeline with Grain or wholegrain."""
    options = package.MultiprocessingOptions(num_workers=job.workers)
    ds = build(package, job.recipe)
    return iter(ds.mp_prefetch(options, sequential_slice=job.sequential))


def run(it: Any) -> tuple[list[Any], list[Any]]:
    """Return the first elements, and the states before each, after the last, and at the end."""
    elements: list[Any] = []
    states = [copy.deepcopy(it.get_state())]
    while len(elements) < MOST_ELEMENTS:
        element = next(it, END)
        states.append(copy.deepcopy(it.get_state()))
        if isinstance(element, str) and element == END:
            break
        elements.append(element)
    return elements, states


def rest(it: Any, step: int) -> list[Any]:
    """Return the elements up to the same one, of an iterator that stands at `step`."""
    elements: list[Any] = []
    while step + len(elements) < MOST_ELEMENTS:
        element = next(it, END)
        if isinstance(element, str) and element == END:
            break
        elements.append(element)
    return elements


def _plain(value: Any) -> Any:
    """Return the same with ordinary arrays: Grain's are pickled by the name of their memory."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_plain(item) for item in value])
    return np.array(value) if isinstance(value, np.ndarray) else value


def main() -> None:
    """Run the jobs."""
    import grain  # type: ignore[import-untyped,unused-ignore]
    from absl import flags  # type: ignore[import-untyped,unused-ignore]

    flags.FLAGS.mark_as_parsed()
    jobs: list[Job] = pickle.loads(Path(sys.argv[1]).read_bytes())
    outcomes = []
    for job in jobs:
        it = open_job(grain, job)
        elements, states = run(it)
        it.set_state(copy.deepcopy(job.state))  # The processes go on; starting them takes long.
        restored = rest(it, job.step)
        it.close()
        outcomes.append((_plain(elements), states, _plain(restored)))
    Path(sys.argv[2]).write_bytes(pickle.dumps(outcomes))


if __name__ == "__main__":
    main()
