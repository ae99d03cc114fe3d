"""Pipelines of all kinds, while their processes are killed at random."""

import os
from pathlib import Path

import pytest

from tests.stress.kills import PIPELINES
from tests.workers.processes import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="looks at Linux processes")

_ROOT = str(Path(__file__).parents[2])
_KILLS = int(os.environ.get("WHOLEGRAIN_TEST_KILLS", "6"))


def _run(name: str, **environ: str) -> None:
    code = f"import sys; sys.path.insert(0, {_ROOT!r}); from tests.stress import kills"
    code += f"; kills.main({_KILLS}, {os.getpid()}, {name!r})"
    result = run_python("-W", "ignore", "-c", code, environ=environ)
    assert (result.stderr, result.returncode) == ("", 0), f"The seed is {os.getpid()}."
    assert result.stdout.startswith(f"kills: {_KILLS},")


@pytest.mark.parametrize("name", PIPELINES)
def test_kills_change_no_element_and_leave_nothing(name: str) -> None:
    _run(name)


@pytest.mark.parametrize("name", ["map", "auto"])
def test_kills_change_nothing_without_the_process_that_starts_workers(name: str) -> None:
    _run(name, WHOLEGRAIN_WORKER_START="spawn")
