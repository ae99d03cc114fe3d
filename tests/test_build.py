"""What is published: the source, the wheel with the C extension, and the one without it."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_ROOT = Path(__file__).parent.parent
_DATA = ["wholegrain/py.typed", "wholegrain/_observe/dashboard/page.html"]
_WORKFLOW = _ROOT / ".github/workflows/test.yml"


def _build(what: str, source: Path, target: Path, **environ: str) -> Path:
    """Build without a network, with the packages of this environment."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", what, "--outdir", str(target), "."],
        cwd=source,
        env={**os.environ, **environ},
        check=True,
        capture_output=True,
        text=True,
    )
    [built] = target.iterdir()
    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source as it is published, unpacked. Wheels are built from it, as pip does."""
    if importlib.util.find_spec("build") is None:
        pytest.skip("needs the package build")
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(_build("--sdist", _copy_of_the_checkout(folder), folder / "out")) as packed:
        packed.extractall(folder / "in", filter="data")
    [unpacked] = (folder / "in").iterdir()
    return unpacked


def _copy_of_the_checkout(folder: Path) -> Path:
    """Return a copy of what a build needs: building leaves files behind."""
    names = ["src", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"]
    for name in names:
        ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
        if (_ROOT / name).is_dir():
            shutil.copytree(_ROOT / name, folder / "checkout" / name, ignore=ignored)
        else:
            (folder / "checkout").mkdir(exist_ok=True)
            shutil.copy(_ROOT / name, folder / "checkout" / name)
    return folder / "checkout"


def _modules(root: Path) -> set[str]:
    return {file.relative_to(root).as_posix() for file in root.rglob("*.py")}


def test_the_source_has_all_that_a_build_needs(source: Path) -> None:
    published = {file.relative_to(source).as_posix() for file in source.rglob("*")}
    needed = {f"src/{name}" for name in _modules(_ROOT / "src")} | {f"src/{name}" for name in _DATA}
    for file in (_ROOT / "src/wholegrain/_core").glob("_native*.[ch]"):
        needed.add(file.relative_to(_ROOT).as_posix())
    assert needed | {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= published


def test_a_wheel_serves_all_pythons_from_3_11_on(source: Path, tmp_path: Path) -> None:
    wheel = _build("--wheel", source, tmp_path)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert _modules(_ROOT / "src") | set(_DATA) <= names
    assert any(name.startswith("wholegrain/_core/_native.") for name in names)
    assert not [name for name in names if name.endswith((".c", ".h"))]
    if sys.implementation.name == "cpython" and getattr(sys, "abiflags", "") != "t":
        assert "-cp311-abi3-" in wheel.name


def test_a_pure_wheel_works_alone(source: Path, tmp_path: Path) -> None:
    wheel = _build("--wheel", source, tmp_path / "out", WHOLEGRAIN_PURE="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert _modules(_ROOT / "src") | set(_DATA) <= set(names)
    assert not [name for name in names if "_native." in name]

    # An empty environment, with nothing but what the package requires.
    venv.create(tmp_path / "venv", with_pip=False)
    packages = min((tmp_path / "venv").glob("[Ll]ib*/**/site-packages"))  # `lib64` is a link.
    zipfile.ZipFile(wheel).extractall(packages)
    for required in ("numpy", "numpy.libs", "cloudpickle"):
        installed = Path(np.__file__).parent.parent / required
        if installed.exists():
            (packages / required).symlink_to(installed)
    program = tmp_path / "main.py"
    program.write_text(_PROGRAM)
    [python] = [*(tmp_path / "venv").glob("bin/python"), *tmp_path.glob("venv/Scripts/python.exe")]
    done = subprocess.run(
        [str(python), "-I", str(program)], check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.split() == [str(packages), "None", "[5,", "6,", "7,", "8,", "9]", "12"]


_PROGRAM = """
from pathlib import Path
import wholegrain as wg
from wholegrain._core import native


def main():
    print(Path(wg.__file__).parent.parent, native.lib)
    ds = wg.MapDataset.range(10).map(lambda number: number).to_iter_dataset()
    options = wg.MultiprocessingOptions(num_workers=2)
    it = iter(ds.mp_prefetch(options))
    state = [next(it) for _ in range(5)] and it.get_state()
    it.set_state(state)
    print(list(it))
    print(len(list(wg.MapDataset.range(24).shuffle(seed=1).batch(2))))


if __name__ == "__main__":
    main()
"""


# The workflow that runs these on other systems.


def _workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    loaded: dict[str, Any] = yaml.safe_load(_WORKFLOW.read_text())
    return loaded


def test_the_workflow_runs_the_scripts_of_the_repository() -> None:
    jobs = _workflow()["jobs"]
    for name, job in jobs.items():
        assert job["runs-on"], name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), f"{name}: {step}"
        assert job.get("needs", name) in jobs
    [script] = [step["run"] for step in jobs["linux"]["steps"] if "run" in step]
    assert script == "bash .ci/run"
    assert os.access(_ROOT / ".ci/run", os.X_OK)
    [tests] = [
        step["run"] for step in jobs["elsewhere"]["steps"] if "pytest -q" in step.get("run", "")
    ]
    for folder in [word for word in tests.split() if word.startswith("tests/")]:
        assert (_ROOT / folder).is_dir()


def _project() -> dict[str, Any]:
    return tomllib.loads((_ROOT / "pyproject.toml").read_text())


def test_the_workflow_tests_the_pythons_that_the_package_claims() -> None:
    claimed = {
        name.rpartition(" ")[2]
        for name in _project()["project"]["classifiers"]
        if name.startswith("Programming Language :: Python :: 3.")
    }
    jobs = _workflow()["jobs"]
    tested = set(jobs["linux"]["strategy"]["matrix"]["python"])
    tested |= {entry["python"] for entry in jobs["elsewhere"]["strategy"]["matrix"]["include"]}
    assert tested == claimed


def test_wheels_are_made_for_linux_macos_and_windows() -> None:
    settings = _project()["tool"]["cibuildwheel"]
    systems = {name.split("-")[1].split("_")[0] for name in settings["build"]}
    assert systems == {"manylinux", "macosx", "win"}
    assert {name.split("-")[0] for name in settings["build"]} == {"cp311"}
    for path in settings["test-sources"]:
        assert (_ROOT / path).exists()
