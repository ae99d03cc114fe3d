"""Damaged files of all formats: no crash, no hang, no memory bomb, errors that name the file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stress.fuzz import FORMATS, INDEXED

_MUTATIONS = 2000
# Those that write an index for each file take longer.
_INDEXED_MUTATIONS = int(os.environ.get("WHOLEGRAIN_MUTATIONS", "100"))

pytest.importorskip("array_record")
pytest.importorskip("bagz")
pytest.importorskip("pyarrow")
pytest.importorskip("zstandard")


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files_are_read_or_refused_by_name(kind: str, tmp_path: Path) -> None:
    count = _INDEXED_MUTATIONS if kind in INDEXED else _MUTATIONS
    done = subprocess.run(
        [sys.executable, "-m", "tests.stress.fuzz", kind, str(count), "0", str(tmp_path)],
        cwd=Path(__file__).parent.parent.parent,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "WHOLEGRAIN_CACHE": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
