"""`bench` and `check`, on pipelines of a file of the user's."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.tools import run, succeed
from wholegrain._cli import main

_PIPELINES = """
import random, threading
import numpy as np
import wholegrain as wg

good = (
    wg.MapDataset.range(200).seed(1).shuffle()
    .random_map(lambda x, rng: np.array([x, rng.integers(9)])).batch(4)
)

def make():
    return good.to_iter_dataset()

loader = wg.load(list(range(40)), num_epochs=1, shuffle=True, seed=3, batch_size=4)
with_workers = good.to_iter_dataset().mp_prefetch(wg.MultiprocessingOptions(2))
unseeded = wg.MapDataset.range(20).map(lambda x: random.random())
TABLE = np.zeros((1000, 400))
heavy = wg.MapDataset.range(20).map(lambda x: TABLE[x])

def make_locked():
    lock = threading.Lock()
    return wg.MapDataset.range(20).map(lambda x: (lock, x)[1])

words = wg.MapDataset.source(list({f"word {number}" for number in range(20)}))

def fail(x):
    if x == 3:
        raise ValueError("bad jpeg")
    return x

failing = wg.MapDataset.range(20).map(fail).to_iter_dataset()

def decode(x):
    import jax
    return x

with_jax = wg.MapDataset.range(20).map(decode)

class Forgetful(wg.DatasetIterator):
    def __init__(self):
        self.count = 0
    def __next__(self):
        self.count += 1
        return self.count
    def get_state(self):
        return {}
    def set_state(self, state):
        pass

class ForgetfulDataset(wg.IterDataset):
    def __iter__(self):
        return Forgetful()

forgetful = ForgetfulDataset()
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "pipes.py").write_text(_PIPELINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    yield
    sys.modules.pop("pipes", None)


def _check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    capsys.readouterr()
    code = main(["check", *arguments, "--json", "--elements", "8", "--restores", "1"])
    content: Any = json.loads(capsys.readouterr().out)
    assert content["passed"] == (code == 0)
    return code, {each["check"]: each["status"] for each in content["findings"]}


@pytest.mark.parametrize("name", ["good", "make", "loader", "with_workers"])
def test_good_pipelines_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = _check(capsys, f"pipes:{name}")
    assert code == 0
    assert set(findings.values()) == {"ok"}
    assert list(findings) == [
        "pickling",
        "heavy captures",
        "determinism",
        "fresh process",
        "resume",
        "jax in workers",
    ]


def test_random_numbers_without_a_seed_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = _check(capsys, "pipes.py:unseeded")
    assert code == 1
    assert findings["determinism"] == findings["fresh process"] == findings["resume"] == "failed"


def test_an_order_that_depends_on_hashes_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = _check(capsys, "pipes:words")
    assert code == 1
    assert findings["determinism"] == "ok"
    assert findings["fresh process"] == "failed"


def test_what_cannot_be_pickled_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = _check(capsys, "pipes:make_locked")
    assert (code, findings["pickling"]) == (1, "failed")
    main(["check", "pipes:make_locked"])
    assert "MapMapDataset" in capsys.readouterr().out


def test_a_state_that_forgets_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = _check(capsys, "pipes:forgetful", "--seed", "1")
    assert (code, findings["determinism"], findings["resume"]) == (1, "ok", "failed")


def test_heavy_captures_are_a_warning_or_strictly_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, findings = _check(capsys, "pipes:heavy", "--strict")
    assert (code, findings["heavy captures"]) == (1, "warning")
    assert main(["check", "pipes:heavy", "--restores", "1"]) == 0
    assert "`TABLE`" in capsys.readouterr().out


def test_jax_in_workers_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jax.py").write_text("")  # found before the real one, which takes seconds
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    there = sys.modules.pop("jax", None)
    try:
        code, findings = _check(capsys, "pipes:with_jax")
        assert (code, findings["jax in workers"]) == (0, "warning")
    finally:
        sys.modules.pop("jax", None)
        if there is not None:
            sys.modules["jax"] = there


@pytest.mark.parametrize("name", ["good", "make", "loader", "with_workers"])
def test_bench_measures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    succeed("bench", f"pipes:{name}", "--seconds", "0.1", "--json")
    measured = json.loads(capsys.readouterr().out)
    assert measured["batch_size"] == 4
    assert measured["elements"] > 1
    assert measured["elements_per_s"] > 0
    assert measured["bytes"] > 0
    succeed("bench", f"pipes:{name}", "--seconds", "0.1")
    assert "elements/s" in capsys.readouterr().out


def test_bench_saves_the_report_as_a_page(tmp_path: Path) -> None:
    succeed("bench", "pipes:good", "--seconds", "0.1", "--report", "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()


def test_both_in_processes_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    code, out, err = run("bench", "../pipes.py:with_workers", "--seconds", "0.2", cwd=folder)
    assert (code, err) == (0, "")
    assert "records/s, in batches of 4" in out
    arguments = ["--elements", "8", "--restores", "1"]
    code, out, err = run("check", "../pipes.py:with_workers", *arguments, cwd=folder)
    assert (code, err) == (0, ""), out
    assert "All checks passed." in out
    assert "\x1b" not in out


@pytest.mark.parametrize("command", ["bench", "check"])
def test_an_element_that_fails_is_told_with_line_stage_and_index(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "pipes.py:failing"]) != 0
    said = "".join(capsys.readouterr())
    line = _PIPELINES[: _PIPELINES.index("bad jpeg")].count("\n") + 1
    assert "bad jpeg (ValueError), in fail at " in said
    assert f"pipes.py:{line}" in said
    assert "MapMapDataset(transform=fail" in said
    assert "index 3 of the source" in said
