"""`wholegrain trace`: which records a step of a run was made from, from its checkpoint."""

import argparse
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._cli.console import Console
from wholegrain._cli.errors import BadInput
from wholegrain._cli.pipelines import load_pipeline
from wholegrain._core import tree
from wholegrain._core.elements import describe
from wholegrain._core.origins import Origin, Traced
from wholegrain._graph import epochs
from wholegrain._graph.provenance import traced_element
from wholegrain._loader.iterator import DataLoaderIterator
from wholegrain._state.pipeline_file import check_pipeline

_FILE = re.compile(r"process_(\d+)-of-(\d+)\.json$")


def run(arguments: argparse.Namespace) -> int:
    """Print where a step comes from."""
    file = _state_file(Path(arguments.checkpoint), arguments.process, arguments.step)
    with epochs.meant():
        it = iter(load_pipeline(arguments.pipeline))
        try:
            _restore(it, file)
            if arguments.at is not None:
                it.step = arguments.at
            traced = traced_element(it._whole_run("trace"), arguments.step)  # noqa: SLF001
        finally:
            it.close()
    origins = () if traced is None else traced.origins
    if arguments.write:
        _write(traced, Path(arguments.write))
    if arguments.json:
        content = {"step": arguments.step, "origins": [asdict(origin) for origin in origins]}
        print(json.dumps(content, indent=2))
        return 0
    console = Console()
    what = "a missing element" if traced is None else describe(traced.value)
    console.line(f"step {arguments.step}: {what}", "bold")
    _show(console, origins)
    if arguments.write:
        console.line(f"The element is in {arguments.write}.")
    return 0


def _state_file(place: Path, process: int, step: int) -> Path:
    """Return the file with the state of a process, in a checkpoint or in a folder of them."""
    if place.is_file():
        return place
    if not place.is_dir():
        raise BadInput(f"There is no checkpoint {str(place)!r}.")
    found = {
        file
        for file in place.rglob("process_*-of-*.json")
        if (match := _FILE.match(file.name)) and int(match[1]) == process
    }
    if not found:
        raise BadInput(
            f"{str(place)!r} has no state of process {process}, a file"
            f" `process_{process}-of-N.json`"
        )
    if len(found) == 1:
        return found.pop()
    # A folder with a checkpoint for each step: the last one before the step is closest to it.
    numbered = [(number, file) for file in found for number in _numbers(file, place)]
    before = [(number, file) for number, file in numbered if number <= step]
    if not before:
        names = ", ".join(sorted(str(file.parent) for file in found))
        raise BadInput(f"There are several checkpoints, name one of them: {names}")
    return max(before)[1]


def _numbers(file: Path, place: Path) -> Iterator[int]:
    """Yield the step of a checkpoint, which is the name of a folder."""
    names = [part for part in file.relative_to(place).parts if part.isdecimal()]
    return map(int, names[:1])


def _restore(it: Any, file: Path) -> None:
    try:
        state = json.loads(file.read_text())
    except (ValueError, OSError) as error:
        raise BadInput(f"{str(file)!r} is not the JSON of a state: {error}") from error
    about = file.with_name(file.name.replace("process_", "pipeline_", 1))
    check_pipeline(it, file.parent, about if about != file and about.exists() else None)
    it.set_state(json.dumps(state).encode() if isinstance(it, DataLoaderIterator) else state)


_COLUMNS = ("row", "feature", "span", "source", "path", "path_index", "index", "epoch")
_TITLES = {"path": "file", "path_index": "in file", "index": "record"}


def _show(console: Console, origins: tuple[Origin, ...]) -> None:
    rows = [[_text(getattr(origin, name)) for name in _COLUMNS] for origin in origins]
    used = [n for n in range(len(_COLUMNS)) if any(row[n] for row in rows)]
    titles = [_TITLES.get(_COLUMNS[n], _COLUMNS[n]) for n in used]
    console.table(titles, [[row[n] for n in used] for row in rows])


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]}:{value[1]}"
    return "" if value is None else str(value)


def _write(traced: Traced | None, path: Path) -> None:
    """Write an element: arrays for `.npz`, else a pickle."""
    value = None if traced is None else traced.value
    if path.suffix != ".npz":
        import cloudpickle  # type: ignore[import-untyped]

        path.write_bytes(cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
        return
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        arrays: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in value.items()}
    else:
        arrays = {f"arr_{n}": np.asarray(leaf) for n, leaf in enumerate(tree.leaves(value))}
    np.savez(path, **arrays)
