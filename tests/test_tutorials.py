"""The tutorials that users learn from run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wholegrain as wg

_ROOT = Path(__file__).parent.parent
_FOLDER = Path(__file__).parent / "tutorials"
_TFDS = ["tensorflow_datasets", "array_record", "importlib_resources", "cv2"]
_NEEDED = {
    "data_loader": [*_TFDS, "matplotlib", "orbax.checkpoint"],
    "dataset_advanced": [*_TFDS, "orbax.checkpoint", "jax", "pyarrow"],
    "dataset_basics": [],
}

# What other packages warn about when they are imported is their affair.
pytestmark = pytest.mark.filterwarnings("default")


def _printed(name: str, folder: Path, package: str = "wholegrain") -> list[str]:
    """Run a tutorial; return what it printed."""
    for module in _NEEDED[name]:
        pytest.importorskip(module)
    folder = folder / package
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "tests.tutorials.run", str(_FOLDER / f"{name}.md"), package],
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(folder),
            "MPLBACKEND": "Agg",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_the_data_loader_guide(tmp_path: Path) -> None:
    printed = _printed("data_loader", tmp_path)
    sampler = wg.samplers.IndexSampler(
        5, wg.sharding.ShardOptions(0, 1, drop_remainder=True), True, num_epochs=2, seed=0
    )
    assert printed[:10] == [str(sampler[index]) for index in range(10)]
    assert printed[10] == "# records: 8"

    # Steps 0 to 4, then 5 to 9, and 5 to 9 again after the checkpoint was restored.
    steps = [line for line in printed if re.fullmatch(r"\d b'\d\.jpg' \d", line)]
    assert [int(line[0]) for line in steps] == [*range(10), *range(5, 10)]
    assert steps[10:] == steps[5:10]

    memory = next(place for place, line in enumerate(printed) if "InMemoryDataSource" in line)
    assert re.fullmatch(r"InMemoryDataSource\(name=\w+, len=5\)", printed[memory])
    assert printed[memory + 1] == "First Record Read: 0"
    numbers = [int(line) for line in printed[memory + 2 :]]
    shuffled = wg.samplers.IndexSampler(5, shuffle=True, num_epochs=2, seed=0)
    assert numbers == [shuffled[index].record_key for index in range(10)]


def test_the_basics_of_datasets(tmp_path: Path) -> None:
    printed = _printed("dataset_basics", tmp_path)
    pytest.importorskip("grain")
    assert printed == _printed("dataset_basics", tmp_path, package="grain")


def test_the_advanced_use_of_datasets(tmp_path: Path) -> None:
    printed = _printed("dataset_advanced", tmp_path)
    steps = [line for line in printed if re.fullmatch(r"\d \d", line)]
    assert [int(line[0]) for line in steps] == [*range(8), *range(4, 8)]
    assert steps[8:] == steps[4:8]
    pytest.importorskip("grain")
    assert printed == _printed("dataset_advanced", tmp_path, package="grain")
