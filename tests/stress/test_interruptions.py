"""Exceptions out of signal handlers while processes are started, asked and ended."""

import os
from pathlib import Path

import pytest

from tests.workers.processes import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs the fork server")

_ROOT = str(Path(__file__).parents[2])


@pytest.mark.parametrize(("what", "step"), [("use", 3), ("restart", 23)])
def test_workers_start_after_an_interruption_at_any_place(what: str, step: int) -> None:
    # As a program, with a step of 1, it goes through all of them.
    code = f"import sys; sys.path.insert(0, {_ROOT!r}); from tests.stress import interrupting"
    code += f"; interrupting.main({what!r}, {1 + os.getpid() % step}, {step})"
    result = run_python("-c", code)
    assert (result.stderr, result.returncode) == ("", 0)
    assert int(result.stdout.split()[-1]) > 500
