"""The tutorials that users learn from run as they are written, and with the import changed.

The cells are those of the tutorials, to the letter. What is not shown there is said beside it.
"""

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
    "cifar_source": ["jax", "jaxtyping", "requests"],
}

# What other packages warn about when they are imported is their affair.
pytestmark = pytest.mark.filterwarnings("default")

# How a tutorial is run: in front of the runner, and behind the page.
_WAYS = {
    "changed": ([], ["wholegrain"]),  # `import wholegrain as grain`
    "unchanged": (["-m", "wholegrain"], []),
    "grain": ([], []),  # unchanged, and nothing in its place
}


def _printed(name: str, way: str, folder: Path) -> list[str]:
    """Run a tutorial; return what it printed."""
    for module in _NEEDED[name]:
        pytest.importorskip(module)
    folder = folder / way
    folder.mkdir()
    before, behind = _WAYS[way]
    page = str(_FOLDER / f"{name}.md")
    run = subprocess.run(
        [sys.executable, *before, "-m", "tests.tutorials.run", page, *behind],
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


@pytest.mark.parametrize("way", ["changed", "unchanged"])
def test_the_data_loader_guide(tmp_path: Path, way: str) -> None:
    printed = _printed("data_loader", way, tmp_path)
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
    printed = _printed("dataset_basics", "changed", tmp_path)
    assert _printed("dataset_basics", "unchanged", tmp_path) == printed
    pytest.importorskip("grain")
    assert _printed("dataset_basics", "grain", tmp_path) == printed


def test_the_advanced_use_of_datasets(tmp_path: Path) -> None:
    printed = _printed("dataset_advanced", "changed", tmp_path)
    steps = [line for line in printed if re.fullmatch(r"\d \d", line)]
    assert [int(line[0]) for line in steps] == [*range(8), *range(4, 8)]
    assert steps[8:] == steps[4:8]
    assert _printed("dataset_advanced", "unchanged", tmp_path) == printed
    pytest.importorskip("grain")
    assert _printed("dataset_advanced", "grain", tmp_path) == printed


def test_a_source_of_ones_own(tmp_path: Path) -> None:
    printed = _printed("cifar_source", "changed", tmp_path)
    assert len(printed) == 10  # Two epochs of five records.
    assert _printed("cifar_source", "unchanged", tmp_path) == printed
    pytest.importorskip("grain")
    assert _printed("cifar_source", "grain", tmp_path) == printed
