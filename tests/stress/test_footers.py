"""Parquet files with damaged footers: none gives rows that Arrow would refuse."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

_MUTATIONS = os.environ.get("WHOLEGRAIN_TEST_FOOTERS", "80")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="reads each file in a process of its own")
def test_what_arrow_refuses_gives_no_rows(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.stress.footers", _MUTATIONS, "0", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
