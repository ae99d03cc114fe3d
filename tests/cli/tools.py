"""Running the command, in this process and in others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wholegrain
from wholegrain._cli import main

_PROGRAM = "import sys; from wholegrain._cli import main; sys.exit(main())"


def environ() -> dict[str, str]:
    here = str(Path(wholegrain.__file__).parent.parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def start(*arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        cwd=cwd,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Run the command in a process of its own; return the exit code and what it printed."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def succeed(*arguments: str) -> None:
    """Run the command here, and expect that all is well."""
    assert main(list(arguments)) == 0


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command here, expect that it cannot do it, and return the one line it says."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    line = err.rstrip("\n")
    assert "\n" not in line
    assert line.startswith("wholegrain")
    assert "Traceback" not in line
    return line


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files under a folder, with what is in them."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
