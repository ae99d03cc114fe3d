"""Importing wholegrain is quiet, and loads nothing that it does not need."""

import subprocess
import sys

import pytest

_OPTIONAL = ("jax", "orbax", "pyarrow", "array_record", "torch", "tensorflow", "grain", "absl")


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )


def test_import_loads_no_optional_library_and_prints_nothing() -> None:
    loaded = _run(f"import sys, wholegrain; print([m for m in {_OPTIONAL} if m in sys.modules])")
    assert loaded.stdout == "[]\n"
    assert loaded.stderr == ""


@pytest.mark.parametrize("module", ["wholegrain", "wholegrain.experimental", "wholegrain.testing"])
def test_every_module_can_be_imported_first(module: str) -> None:
    run = _run(f"import {module}")
    assert (run.stdout, run.stderr) == ("", "")


def test_a_pipeline_runs_without_any_optional_library() -> None:
    run = _run(
        "import sys, wholegrain as wg\n"
        "ds = wg.MapDataset.range(6).shuffle(seed=1).map(str).batch(2)\n"
        "print(sum(len(batch) for batch in ds))\n"
        f"print([m for m in {_OPTIONAL} if m in sys.modules])\n"
    )
    assert run.stdout == "6\n[]\n"
    assert run.stderr == ""


def test_the_module_for_torch_names_the_extra_that_installs_it() -> None:
    run = _run(
        "import sys, wholegrain as wg\n"
        "sys.modules['torch'] = None\n"
        "assert 'torch' not in dir(wg)\n"
        "for access in ('import wholegrain.torch', 'wg.torch'):\n"
        "    try:\n"
        "        exec(access)\n"
        "    except ImportError as error:\n"
        "        print('[torch]' in str(error), error.name)\n"
    )
    assert run.stdout == "True torch\n" * 2
