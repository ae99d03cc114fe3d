"""`wholegrain cache` on caches of elements."""

from pathlib import Path

import pytest

from wholegrain._cli.main import main

_PROGRAM = """
import wholegrain as wg

def slow(x):
    with open("calls", "a") as file:
        file.write("x")
    return [x, x * x]

mapped = wg.MapDataset.range(30).map(slow).filter(lambda pair: pair[0] % 3)
ds = mapped.cache("kept").shuffle(seed=1).to_iter_dataset().batch(2)
full = mapped.map(lambda pair: pair).cache("small", 2000)
plain = wg.MapDataset.range(3)
"""


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program_with_cache.py").write_text(_PROGRAM)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_cache_is_built_ahead_of_time(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cache", "build", "program_with_cache.py:ds", "--workers", workers]
    assert main(command) == 0
    assert "30 of 30" in capsys.readouterr().out
    assert Path("calls").read_text() == "x" * 30
    assert main(command) == 0
    assert Path("calls").read_text() == "x" * 30
    assert main(["cache", "ls", "kept"]) == 0
    output = capsys.readouterr().out
    assert "range(0, 30) -> map(slow) -> filter" in output
    assert "30 of 30" in output


def test_a_cache_that_is_too_small_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "build", "program_with_cache.py:full", "--workers", "0"]) == 1
    assert "The cache is full" in capsys.readouterr().out


def test_damaged_elements_are_found_and_all_are_deleted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cache", "build", "program_with_cache.py:ds", "--workers", "0"]) == 0
    (data,) = Path("kept").glob("*/data-*")
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    Path("kept/mine.txt").write_text("text")
    assert main(["cache", "verify", "kept"]) == 1
    assert "1 of 30 elements were damaged" in capsys.readouterr().out
    assert main(["cache", "verify", "kept"]) == 0
    assert "All 29 elements" in capsys.readouterr().out
    assert main(["cache", "build", "program_with_cache.py:ds", "--workers", "0"]) == 0
    assert "new       1" in capsys.readouterr().out
    assert main(["cache", "clear", "kept"]) == 0
    assert sorted(path.name for path in Path("kept").iterdir()) == [
        "lock",
        "mine.txt",
        "wholegrain-elements.json",
    ]


def test_what_has_no_cache_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "build", "program_with_cache.py:plain"]) == 2
    assert "has no cache: `ds.cache(path)` adds one" in capsys.readouterr().err
    assert main(["cache", "ls", "."]) == 2
    assert "is not a cache of wholegrain" in capsys.readouterr().err
