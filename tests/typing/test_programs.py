"""What a type checker says about programs of users, as they are: with its own settings."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("program_*.py"))

# Each line with an error says which.
WRONG = """\
import wholegrain as wg
def shout(text: str) -> str:
    return text.upper()
ds = wg.MapDataset.range(10)
ds.map(shout)  # arg-type
ds.to_iter_dataset().map(shout)  # arg-type
ds.mp_prefetch()  # attr-defined
ds.to_iter_dataset().shuffle(seed=1)  # attr-defined
ds.batch("2")  # call-overload
ds.shuffle(seed="x")  # arg-type
wg.MapDataset.source(iter([1]))  # arg-type
word: str = next(iter(ds))  # assignment
rest = ds.to_iter_dataset().batch(3)
print(next(iter(rest)).upper())  # attr-defined
"""


def _mypy(*arguments: str, cache: Path) -> str:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={cache}", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, cwd=cache, check=False)
    assert not found.stderr
    return found.stdout


def test_programs_check_clean_and_mistakes_are_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    said = _mypy(*map(str, PROGRAMS), str(wrong), cache=tmp_path)
    errors = re.findall(r"^(\S+):(\d+): error: .*\[(.+)\]$", said, re.MULTILINE)
    assert [e for e in errors if Path(e[0]).name != "wrong.py"] == [], said
    expected = re.findall(r"^.*  # (.*)$|^.*$", WRONG.rstrip(), re.MULTILINE)
    found = {int(line): code for _, line, code in errors}
    assert found == {n: code for n, code in enumerate(expected, 1) if code}, said
    said = _mypy("--strict", *map(str, PROGRAMS), cache=tmp_path)
    assert said.startswith("Success"), said


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_programs_check_clean_with_pyright() -> None:
    command = ["pyright", "--pythonpath", sys.executable, *map(str, PROGRAMS)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
