"""Conversions that are killed at random points and started again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.tools import environ, run, start, succeed, tree
from tests.sources import files

pytest.importorskip("pyarrow")
pytest.importorskip("array_record")
pytest.importorskip("google_crc32c")

_NUM_SHARDS = 8


def _write_source(folder: Path, kind: str) -> str:
    rng = random.Random(1)
    records = [rng.randbytes(rng.randrange(2000)) for _ in range(600)]
    if kind == "array_record":
        return files.write_array_record(folder / "in.array_record", records).name
    if kind == "tfrecord":
        return files.write_tfrecord(folder / "in.tfrecord", records[:240]).name
    table = files.table({"number": list(range(600)), "text": [str(r[:30]) for r in records]})
    return files.write_parquet(folder / "in.parquet", table, row_group_size=50).name


@pytest.mark.parametrize(
    ("kind", "destination", "workers", "verify"),
    [
        ("array_record", "out.parquet", "2", False),
        ("parquet", "out.tfrecord", "0", True),
        ("parquet", "out.arrow", "0", False),
        ("tfrecord", "out.array_record", "2", True),
        ("tfrecord", "out", "2", False),
    ],
)
def test_a_killed_conversion_goes_on_to_the_same_bytes(
    kind: str,
    destination: str,
    workers: str,
    verify: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = _write_source(tmp_path, kind)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = ["convert", f"../{source}", destination, "--workers", workers]
    arguments += ["--shards", str(_NUM_SHARDS), *(["--verify"] if verify else [])]
    arguments += ["--to", "folder"] if destination == "out" else []
    whole.mkdir()
    monkeypatch.chdir(whole)
    succeed(*arguments)
    expected = tree(whole)

    killed.mkdir()
    rng = random.Random()
    for part in (rng.random(), rng.random())[: 1 + (destination == "out")]:
        process = start(*arguments, cwd=killed)
        _kill_when(process, killed, int(part * (_NUM_SHARDS + 1)), rng.random() * 0.02)
        if tree(killed) == expected:
            return  # It was done before it was killed.
    code, out, err = run(*arguments, cwd=killed)
    assert (code, err) == (0, ""), out
    assert tree(killed) == expected


def _kill_when(
    process: "subprocess.Popen[str]", folder: Path, finished: int, seconds: float
) -> None:
    """Kill a conversion a moment after so many of its shards are there, or when it has ended."""
    while process.poll() is None and _count(folder) < finished:
        time.sleep(0.001)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def _count(folder: Path) -> int:
    """Return how many shards are finished; everything once they are put in their places."""
    try:
        work = next(folder.glob("*.converting"), None)
        if work is None:
            return -1 if not os.listdir(folder) else _NUM_SHARDS + 1
        names = os.listdir(work)
    except FileNotFoundError:  # it was removed meanwhile
        return _NUM_SHARDS + 1
    return sum(name.startswith(("out-", "done-")) for name in names)


@pytest.mark.parametrize("change", range(7))
def test_killed_at_each_change_of_putting_in_place(
    change: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write_source(tmp_path, "tfrecord")
    arguments = ["convert", f"../{source}", "out.tfrecord", "--shards", "2", "--workers", "0"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    monkeypatch.chdir(whole)
    succeed(*arguments)
    killed.mkdir()
    monkeypatch.chdir(killed)
    _die_at_the_end(arguments, killed, change)
    assert any(killed.glob("*.convert*"))
    succeed(*arguments)
    assert tree(killed) == tree(whole)
    assert sorted(os.listdir(killed)) == sorted(os.listdir(whole))


# Runs the command, and dies at the n-th change of the file system in its end.
_DYING = """
import os, signal, sys
from wholegrain._cli import convert, main
put_in_place, left = convert._put_in_place, int(sys.argv[1])

def audit(event, _):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

def watched(plan):
    sys.addaudithook(audit)
    put_in_place(plan)

convert._put_in_place = watched
main(sys.argv[2:])
"""


def _die_at_the_end(arguments: list[str], folder: Path, number: int) -> None:
    command = [sys.executable, "-c", _DYING, str(number), *arguments]
    subprocess.run(command, cwd=folder, env=environ(), stdout=subprocess.DEVNULL, check=False)
