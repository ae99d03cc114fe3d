"""Directories that Grain wrote are restored here, and ours by Grain: pipelines of every kind."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
import wholegrain.python as flat_wg
from tests.loader import recipes
from tests.parity import golden
from wholegrain.testing import difference

grain: Any = pytest.importorskip("grain")
flat_grain: Any = pytest.importorskip("grain.python")
epath: Any = pytest.importorskip("etils.epath")

pytestmark = pytest.mark.filterwarnings("ignore")

_MOST = 12  # elements of each pipeline
_DATASETS = golden.load("golden_dataset.json")
_NAMES = {package: golden.namespace(package) for package in (grain, wg)}
_to_grain = pytest.mark.parametrize("to_grain", [False, True], ids=["from grain", "to grain"])


def _cases() -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in _DATASETS["cases"]
        if case["kind"] == "iter" and "superseded" not in case
    ]


def _cross(writer: Any, reader: Any, steps: int, directory: Path, packages: tuple[Any, Any]) -> Any:
    """Save after some steps and restore on the other side; return what follows on both."""
    it = iter(writer)
    for _ in range(steps):
        next(it)
    directory.mkdir()
    packages[0].checkpoint.CheckpointHandler().save(epath.Path(directory), it)
    follows = list(itertools.islice(it, _MOST))
    other = iter(reader)
    packages[1].checkpoint.CheckpointHandler().restore(epath.Path(directory), other)
    return follows, list(itertools.islice(other, _MOST))


@_to_grain
@pytest.mark.parametrize("case", _cases())
def test_datasets_cross_over(case: dict[str, Any], to_grain: bool, tmp_path: Path) -> None:
    expr, failures = case["expr"], case.get("reference_restore_failures", ())
    packages = (wg, grain) if to_grain else (grain, wg)
    if "ConcatThenSplit" in expr and to_grain:
        pytest.skip("Grain does not restore its own files of these")
    for steps in (0, 1, 3):
        if steps > len(case["elements"]) or (to_grain and steps in failures):
            continue
        writer, reader = (eval(expr, _NAMES[package]) for package in packages)
        follows, found = _cross(writer, reader, steps, tmp_path / str(steps), packages)
        assert difference(follows, found) is None, f"after {steps} steps"


def _loaders() -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in golden.load("golden_dataloader.json")["loaders"]
        if case["workers"] == 0 and "restore" in case and "head_outputs" not in case
    ]


@_to_grain
@pytest.mark.parametrize("case", _loaders())
def test_loaders_cross_over(case: dict[str, Any], to_grain: bool, tmp_path: Path) -> None:
    packages = (wg, grain) if to_grain else (grain, wg)
    flat = (flat_wg, flat_grain) if to_grain else (flat_grain, flat_wg)
    for steps in {0, min(2, len(case["outputs"]))}:
        writer, reader = (recipes.loader(package, case) for package in flat)
        follows, found = _cross(writer, reader, steps, tmp_path / str(steps), packages)
        assert difference(follows, found) is None, f"after {steps} steps"
