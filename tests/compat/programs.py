"""Programs run in processes of their own: what is imported there stays there."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent


def python(*arguments: str | Path, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run an interpreter that finds what this one finds."""
    path = os.pathsep.join([str(_ROOT / "src"), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def printed(*arguments: str | Path, cwd: Path, **environ: str) -> list[str]:
    """Run an interpreter; return the lines that it printed."""
    run = python(*arguments, cwd=cwd, **environ)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()
