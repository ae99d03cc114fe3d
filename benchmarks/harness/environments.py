"""The environments that competitors run in: made once by plain venv and pip, then reused."""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
HOME = CHECKOUT / ".benchmarks"
DATA = HOME / "data"

REQUIREMENTS = {
    "wholegrain": [
        *("numpy", "cloudpickle", "array_record", "pyarrow", "google-crc32c", "pillow", "attrs"),
        "obstore",
    ],
    "grain": ["grain==0.2.18", "numpy", "pyarrow", "pillow", "attrs"],
    "torch": ["torch==2.13.0", "numpy", "array_record", "pillow"],
    "spdl": ["spdl==0.8.0", "numpy"],
    "datasets": ["datasets==5.2.0", "numpy"],
    "webdataset": ["webdataset==1.0.2", "numpy"],
}
for _library in ("wholegrain", "grain"):
    REQUIREMENTS[f"{_library}-jax"] = [*REQUIREMENTS[_library], "jax", "orbax-checkpoint"]

PACKAGED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
NOT_PACKAGED = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")


class Environments:
    """Hands out an interpreter for each library, setting it up at the first request.

    Args:
        given: Interpreters to use as they are, by library.
    """

    def __init__(self, given: dict[str, str]) -> None:
        self._ready = dict(given)
        self._wheel: tuple[Path, str] | None = None

    def python(self, library: str) -> str:
        if library not in self._ready:
            self._ready[library] = str(self._make(library))
        return self._ready[library]

    def _make(self, library: str) -> Path:
        place = HOME / f"{library}-{sys.implementation.cache_tag}"
        python = place / "bin" / "python"
        requirements = REQUIREMENTS[library]
        if not _up_to_date(place / "requirements", "\n".join(requirements)):
            print(f"Setting up {place.name}: {', '.join(requirements)}", file=sys.stderr)
            venv.create(place, with_pip=True)
            _pip(python, "install", *requirements)
            _mark(place / "requirements", "\n".join(requirements))
        if library.startswith("wholegrain"):
            wheel, fingerprint = self._wholegrain()
            if not _up_to_date(place / "wholegrain", fingerprint):
                _pip(python, "install", "--no-deps", "--force-reinstall", str(wheel))
                _mark(place / "wholegrain", fingerprint)
        return python

    def _wholegrain(self) -> tuple[Path, str]:
        """Build this checkout from a copy, so that nothing is left behind in it."""
        if self._wheel is None:
            fingerprint = _fingerprint([CHECKOUT / name for name in PACKAGED])
            wheels = HOME / "wheels"
            if not _up_to_date(wheels / "fingerprint", fingerprint):
                print("Building wholegrain from this checkout", file=sys.stderr)
                copy = HOME / "checkout"
                for old in (copy, wheels):
                    shutil.rmtree(old, ignore_errors=True)
                copy.mkdir(parents=True)
                wheels.mkdir()
                for source in (CHECKOUT / name for name in PACKAGED):
                    if source.is_dir():
                        shutil.copytree(source, copy / source.name, ignore=NOT_PACKAGED)
                    else:
                        shutil.copy2(source, copy)
                _pip(Path(sys.executable), "wheel", "--no-deps", "-w", str(wheels), str(copy))
                _mark(wheels / "fingerprint", fingerprint)
            self._wheel = next(wheels.glob("*.whl")), fingerprint
        return self._wheel


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True)


def _up_to_date(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


def _mark(stamp: Path, text: str) -> None:
    stamp.write_text(text)


def _fingerprint(paths: list[Path]) -> str:
    state = hashlib.sha256()
    for path in paths:
        ignored = NOT_PACKAGED(str(path), [one.name for one in path.rglob("*")])
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not ignored.intersection(file.parts):
                state.update(str(file.relative_to(CHECKOUT)).encode() + file.read_bytes())
    return state.hexdigest()
