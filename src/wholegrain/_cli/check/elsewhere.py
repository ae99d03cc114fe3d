"""The pipeline in a fresh process, which shares nothing with this one."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from wholegrain._cli.errors import with_place
from wholegrain._cli.pipelines import load_pipeline

_TIMEOUT_S = 300.0
# Workers do not use accelerators, and these libraries cost seconds and gigabytes in each.
FRAMEWORKS = ("jax", "tensorflow", "torch")

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from wholegrain._cli.check import elsewhere
getattr(elsewhere, sys.argv[2])(*sys.argv[3:])
"""


class FailedElsewhereError(Exception):
    """The other process could not do what was asked."""


def _run(function: str, *arguments: str) -> None:
    # String hashes differ between processes, even if PYTHONHASHSEED was set.
    environ = {**os.environ, "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), function, *arguments]
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_TIMEOUT_S,
                env=environ,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FailedElsewhereError(f"no answer within {_TIMEOUT_S:.0f} seconds") from None
        if process.returncode:
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise FailedElsewhereError(f"exit code {process.returncode}: {lines[-1]}")


def elements_elsewhere(spec: str, count: int) -> list[Any]:
    """Return the first elements of the pipeline, as read by a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "elements")
        _run("tell_elements", spec, str(count), str(path))
        error, elements = pickle.loads(path.read_bytes())
    if error is not None:
        raise FailedElsewhereError(error)
    return elements  # type: ignore[no-any-return]


def tell_elements(spec: str, count: str, path: str) -> None:
    """Run in the other process: write the first elements to a file."""
    error, elements = None, b""
    try:
        pipeline = load_pipeline(spec)
        it = iter(pipeline)
        elements = cloudpickle.dumps([_kept(element) for element in islice(it, int(count))])
        it.close()
    except Exception as problem:
        error = with_place(problem)
    content = (error, pickle.loads(elements) if elements else [])
    Path(path).write_bytes(cloudpickle.dumps(content))


def _kept(element: Any) -> Any:
    """Return an independent copy."""
    return pickle.loads(cloudpickle.dumps(element))


def frameworks_elsewhere(dataset: Any) -> dict[str, str]:
    """Return the frameworks that a worker would import, and the code that imports them."""
    with tempfile.TemporaryDirectory() as folder:
        packed, answer = Path(folder, "pipeline"), Path(folder, "answer")
        packed.write_bytes(cloudpickle.dumps(dataset))
        _run("tell_frameworks", str(packed), str(answer))
        found: dict[str, str] = json.loads(answer.read_text())
    return found


def tell_frameworks(packed: str, answer: str) -> None:
    """Run in the other process: read an element, and report what that imported."""
    watcher = _Watcher()
    sys.meta_path.insert(0, watcher)
    dataset = pickle.loads(Path(packed).read_bytes())
    it = iter(dataset)
    next(it, None)
    it.close()
    # Only modules that are installed.
    there = {name: where for name, where in watcher.importers.items() if name in sys.modules}
    Path(answer).write_text(json.dumps(there))


class _Watcher:
    """Records what is imported, and by which statement."""

    def __init__(self) -> None:
        self.importers: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in FRAMEWORKS and name not in self.importers:
            self.importers[name] = _importer()
        return None


def _importer() -> str:
    """Return the file and line of the import statement."""
    for frame in reversed(traceback.extract_stack()):
        if "importlib" not in frame.filename and frame.filename != __file__:
            return f"{frame.filename}:{frame.lineno}"
    return "?"
