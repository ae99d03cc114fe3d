import re
import sys
from pathlib import Path

import pytest

from tests.cli.tools import complaint, run


def test_the_digest_of_a_killed_run_is_that_of_an_undisturbed_one(tmp_path: Path) -> None:
    pytest.importorskip("array_record")
    code, out, err = run("demo", "--steps", "40", "--images", "500", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    first, killed, resumed = re.findall(r"digest ([0-9a-f]{64})", out)
    assert first == resumed != killed
    assert "SIGKILL" in out
    assert "every pixel" in out
    assert list(tmp_path.iterdir()) == []


def test_without_array_record_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    line = complaint(capsys, "demo", "--steps", "20", "--images", "64")
    assert "[array-record]" in line
