"""Restores a pipeline as a training job would: in a new process."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import traceback
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from wholegrain._core.difference import show
from wholegrain._graph import epochs
from wholegrain._state.files import state_text
from wholegrain._workers import startup
from wholegrain.testing.checks import END, assert_equal, saying

_JOB, _ANSWER, _LOG = "job", "answer", "log"

# The new process has to find modules where this one does, before it imports anything else.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from wholegrain.testing.resume import answer
answer(sys.argv[1])
"""


def check_resume(
    pipeline: Any,
    *,
    max_elements: int = 64,
    num_restores: int = 3,
    seed: int = 0,
    timeout_s: float = 300.0,
) -> None:
    """Check that a pipeline continues after a restart as if it had not been stopped.

    The pipeline is run here once, without interruption. Then, for a few random steps, a new Python
    process gets a copy of the pipeline and the state after that step, as JSON. It has to read the
    same elements that followed here.

    This finds errors that a restore within one process cannot: an order that depends on the hash of
    strings or on the order of files in a folder, random numbers without a seed, counters in global
    variables, and states that JSON changes.

    Args:
        pipeline: A dataset or a DataLoader, or a function without arguments that returns one.
            Functions and classes of the main script are sent to the process; modules are imported
            there.
        max_elements: How many elements of a longer pipeline to read.
        num_restores: At how many steps to restore, each in a process of its own.
        seed: Selects the steps.
        timeout_s: How long each of the processes may take.

    Raises:
        AssertionError: If a restored run differs from the uninterrupted one, or fails.

    Example:
        >>> def test_training_data_resumes():
        ...     check_resume(make_dataset(split="train"))
    """
    with saying("The pipeline cannot be pickled, to be sent to another process"):
        packed: bytes = cloudpickle.dumps(pipeline)
    with epochs.meant():
        elements, states, has_ended = _run(pipeline, max_elements)
    rng = np.random.default_rng(seed)
    steps = rng.permutation(len(states))[:num_restores].tolist()
    for step in sorted(steps):
        what = f"After the state of step {step} was restored in another process"
        expected = elements[step:]
        # Reading one more element shows whether the pipeline ends at the right step.
        count = len(expected) + has_ended
        found = _read_elsewhere(packed, states[step], count, timeout_s, what)
        for number, pair in enumerate(zip_longest(expected, found, fillvalue=END), step):
            if pair[0] is END:
                raise AssertionError(
                    f"{what}: it goes on after its end.\nexpected: the end\nfound: {show(pair[1])}"
                )
            if pair[1] is END:
                raise AssertionError(
                    f"{what}: element {number} is missing.\nexpected: {show(pair[0])}\n"
                    "found: the end"
                )
            assert_equal(*pair, f"{what}: element {number}")


def _run(pipeline: Any, max_elements: int) -> tuple[list[Any], list[str], bool]:
    """Return the elements, the states between them as JSON, and whether the pipeline ended."""
    elements: list[Any] = []
    it = _opened(pipeline)
    try:
        states = [_text_of(it.get_state(), 0)]
        while len(elements) < max_elements:
            with saying(f"Element {len(elements)} could not be read"):
                element = next(it, END)
            if element is END:
                return elements, states, True
            # Copy the element, so that later changes in place do not affect it.
            elements.append(pickle.loads(cloudpickle.dumps(element)))
            states.append(_text_of(it.get_state(), len(elements)))
    finally:
        it.close()
    return elements, states[:-1] or states, False


def _opened(pipeline: Any) -> Any:
    if callable(pipeline) and not hasattr(pipeline, "__iter__"):
        pipeline = pipeline()
    with saying("iter() of the pipeline failed"):
        return iter(pipeline)


def _text_of(state: Any, step: int) -> str:
    if isinstance(state, bytes):
        return state.decode()
    with saying(f"The state after {step} elements cannot be written as JSON: {state}"):
        return state_text(state)


def _read_elsewhere(
    packed: bytes, state: str, count: int, timeout_s: float, what: str
) -> list[Any]:
    """Return the elements that a new process reads from `state` on."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / _JOB).write_bytes(pickle.dumps((packed, state, count, startup.calls())))
        # Not a pipe: workers of the pipeline might hold on to it.
        with open(Path(folder) / _LOG, "w+b") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, folder, json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{what}, nothing came for {timeout_s} seconds.") from None
            finally:
                process.kill()
                process.wait()
            log.seek(0)
            output = log.read().decode(errors="replace")
        if code:
            raise AssertionError(f"{what}, it ended with exit code {code}.\n{output}".rstrip())
        error, elements = pickle.loads((Path(folder) / _ANSWER).read_bytes())
        if error is not None:
            raise AssertionError(f"{what}: {error}\n{output}".rstrip())
        return elements  # type: ignore[no-any-return]


def answer(folder: str) -> None:
    """Read elements in the other process for `check_resume`, and write them to `folder`."""
    packed, state, count, first = pickle.loads((Path(folder) / _JOB).read_bytes())
    error: str | None = None
    elements: list[Any] = []
    doing = "the pipeline could not be unpickled"
    try:
        startup.run(first)
        pipeline = pickle.loads(packed)
        doing = "the state could not be set"
        it = _opened(pipeline)
        it.set_state(state.encode() if isinstance(it.get_state(), bytes) else json.loads(state))
        doing = "an element could not be read"
        elements = [pickle.loads(cloudpickle.dumps(element)) for element in islice(it, count)]
        it.close()
    except Exception:
        error = f"{doing}.\n{traceback.format_exc()}"
    (Path(folder) / _ANSWER).write_bytes(cloudpickle.dumps((error, elements)))
