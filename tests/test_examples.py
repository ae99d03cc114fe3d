"""The programs in `examples` run, and show what they say they show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_NEEDED = {
    "jax_orbax": ["jax", "orbax.checkpoint"],
    "llm_packing": [],
    "pytorch_loop": ["torch"],
}


# What other packages warn about when they are imported is their affair.
pytestmark = pytest.mark.filterwarnings("default")


def _printed(name: str) -> str:
    """Run an example; return what it printed."""
    for module in _NEEDED[name]:
        pytest.importorskip(module)
    run = subprocess.run(
        [sys.executable, str(_ROOT / "examples" / f"{name}.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def _losses(printed: str) -> list[tuple[int, float]]:
    found = re.findall(r"step (\d+): loss ([\d.]+)", printed)
    return [(int(step), float(loss)) for step, loss in found]


def test_a_jax_run_that_was_stopped_ends_with_the_same_weights() -> None:
    printed = _printed("jax_orbax")
    assert "resumes after step 150" in printed
    assert printed.endswith("The weights are equal bit for bit.\n")
    losses = _losses(printed)
    whole, parts = losses[:6], losses[6:]
    assert whole == parts
    assert whole[-1][1] < whole[0][1]


def test_a_pytorch_run_that_was_stopped_has_the_same_losses() -> None:
    printed = _printed("pytorch_loop")
    assert "resumes after step 80" in printed
    assert printed.endswith("The losses of all steps are equal.\n")
    assert _losses(printed)[0] == _losses(printed)[-1]


def test_packed_rows_have_little_padding_and_resume() -> None:
    printed = _printed("llm_packing")
    share = re.search(r"([\d.]+)% of the tokens are not padding", printed)
    assert share is not None
    assert float(share[1]) > 95
    assert "the same batches follow" in printed


def test_each_example_is_tested() -> None:
    there = {file.stem for file in (_ROOT / "examples").glob("*.py")} - {"demo"}
    assert there == _NEEDED.keys()
