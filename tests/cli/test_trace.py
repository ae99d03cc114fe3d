"""`wholegrain trace` and `wholegrain check --digest`."""

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wholegrain._cli import main
from wholegrain._state import files

_PIPELINES = """
import numpy as np
import wholegrain as wg

BAD = {bad}

def token(x):
    return {{"x": np.array([x, 7 if x in BAD else x])}}

numbers = wg.MapDataset.range(200).named("numbers").shuffle(seed=1)
ds = numbers.map(token).to_iter_dataset().batch(4)
sieved = numbers.to_iter_dataset().filter(lambda x: x % 3 > 0).batch(2)
loader = wg.load(list(range(40)), num_epochs=1, shuffle=True, seed=3, batch_size=4)
other = wg.MapDataset.range(200).shuffle(seed=2).map(token).to_iter_dataset().batch(4)
short = numbers[:40].map(token).batch(4)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "traced.py").write_text(_PIPELINES.format(bad=set()))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("traced", None)


def _pipeline(name: str) -> Any:
    from wholegrain._cli.pipelines import load_pipeline

    return load_pipeline(f"traced.py:{name}")


def _save(name: str, steps: int, folder: Path) -> list[Any]:
    it = iter(_pipeline(name))
    elements = [next(it) for _ in range(steps)]
    folder.mkdir(parents=True)
    files.save(it, folder)
    return elements


def _trace(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["trace", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["origins"]


@pytest.mark.parametrize("name", ["ds", "sieved", "loader"])
def test_traces_a_step_before_and_after_the_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    elements = _save(name, 6, folder / "checkpoint")
    for step in (2, 5):
        pipeline = f"traced.py:{name}"
        origins = _trace(capsys, "checkpoint", "--step", str(step), "--pipeline", pipeline)
        batch = elements[step]["x"][:, 0] if name == "ds" else elements[step]
        assert [one["index"] for one in origins] == batch.tolist()
        assert [one["row"] for one in origins] == list(range(len(batch)))


def test_prints_a_table_and_writes_the_element(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (*_, last) = _save("ds", 3, folder / "checkpoint")
    arguments = ["trace", "checkpoint", "--step", "2", "--pipeline", "traced.py:ds"]
    assert main([*arguments, "--write", "step.npz"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("step 2: ")
    assert out.splitlines()[1].split() == ["row", "source", "record", "epoch"]
    row = int(last["x"][1, 0])
    assert out.splitlines()[3].split() == ["1", "numbers", str(row), "0"]
    assert np.load("step.npz")["x"].tolist() == last["x"].tolist()
    assert main([*arguments, "--write", "step.pkl"]) == 0
    assert pickle.loads(Path("step.pkl").read_bytes())["x"].tolist() == last["x"].tolist()


def test_takes_the_checkpoint_before_the_step(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (2, 4, 6):
        elements = _save("sieved", step, folder / "checkpoints" / str(step) / "data")
    common = ["checkpoints", "--pipeline", "traced.py:sieved"]
    origins = _trace(capsys, *common, "--step", "5", "--at", "4")
    assert [one["index"] for one in origins] == elements[5].tolist()
    # It is read from the start if it is not known which step the checkpoint has.
    assert _trace(capsys, *common, "--step", "5") == origins
    assert main(["trace", *common, "--step", "1"]) == 2
    assert "There are several checkpoints" in capsys.readouterr().err


def test_says_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _save("ds", 3, folder / "checkpoint")
    arguments = ["--pipeline", "traced.py:ds", "--step", "1"]
    assert main(["trace", "nowhere", *arguments]) == 2
    assert "There is no checkpoint 'nowhere'" in capsys.readouterr().err
    assert main(["trace", "checkpoint", *arguments, "--process", "3"]) == 2
    assert "no state of process 3" in capsys.readouterr().err
    assert main(["trace", "checkpoint", *arguments[:2], "--step", "50"]) == 2
    assert "the pipeline has 50 steps" in capsys.readouterr().err
    assert main(["trace", "traced.py", *arguments]) == 2
    assert "is not the JSON of a state" in capsys.readouterr().err
    assert main(["trace", "checkpoint", "--pipeline", "traced.py:other", "--step", "1"]) == 2
    assert "another pipeline" in capsys.readouterr().err


def test_compares_two_runs_and_names_the_first_record_that_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["check", "traced.py:ds", "--digest", "run.json", "--elements", "30"]
    assert main(check) == 0
    assert "recorded 30 steps in run.json" in capsys.readouterr().out
    assert main(check) == 0
    assert "the same elements as in run.json" in capsys.readouterr().out
    bad = iter(_pipeline("ds")).provenance(20)[2].index
    sys.modules.pop("traced")
    Path("traced.py").write_text(_PIPELINES.format(bad={bad}))
    assert main([*check[:-1], "50"]) == 1
    assert f"at step 20, row 2: record {bad} of numbers" in capsys.readouterr().out


def test_a_shorter_run_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "traced.py:ds", "--digest", "run.json"]) == 0
    assert main(["check", "traced.py:short", "--digest", "run.json"]) == 1
    assert "step 10: the pipeline has ended" in capsys.readouterr().out
    Path("run.json").write_text("{}")
    assert main(["check", "traced.py:short", "--digest", "run.json"]) == 2
    assert "is not a file of digests" in capsys.readouterr().err
