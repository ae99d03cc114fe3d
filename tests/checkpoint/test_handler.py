"""The checkpoint handler, used without Orbax."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain.checkpoint import CheckpointHandler


def _dataset_iterator(count: int = 10) -> Any:
    return iter(wg.MapDataset.range(count).to_iter_dataset())


def _loader_iterator(*operations: Any) -> Any:
    return iter(
        wg.DataLoader(
            data_source=wg.sources.RangeDataSource(0, 10, 1),
            sampler=wg.samplers.SequentialSampler(10),
            operations=operations,
        )
    )


class _Args:
    def __init__(self, item: Any) -> None:
        self.item = item


# Files.


def test_a_dataset_iterator_is_one_file_of_json(tmp_path: Path) -> None:
    it = _dataset_iterator()
    next(it)
    CheckpointHandler().save(tmp_path, it)
    assert (tmp_path / "process_0-of-1.json").read_text() == '{\n    "next_index": 1\n}'


def test_a_loaders_iterator_is_its_state(tmp_path: Path) -> None:
    it = _loader_iterator()
    next(it)
    CheckpointHandler().save(tmp_path, it)
    assert (tmp_path / "process_0-of-1.json").read_bytes() == it.get_state()


@pytest.mark.parametrize("make", [_dataset_iterator, _loader_iterator])
def test_an_iterator_goes_back_to_where_it_was(make: Any, tmp_path: Path) -> None:
    it, handler = make(), CheckpointHandler()
    assert [next(it), next(it)] == [0, 1]
    handler.save(tmp_path, args=_Args(it))
    assert [next(it), next(it)] == [2, 3]
    assert handler.restore(tmp_path, args=_Args(it)) is it
    assert list(it) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert handler.restore(tmp_path, item=make()).get_state() != it.get_state()
    assert next(handler.restore(tmp_path, it)) == 2


@pytest.mark.parametrize("kind", [str, Path, lambda path: _PathLike(path)])
def test_the_directory_may_be_any_path(kind: Any, tmp_path: Path) -> None:
    directory, it = kind(tmp_path), _dataset_iterator()
    next(it)
    CheckpointHandler().save(directory, it)
    assert next(CheckpointHandler().restore(directory, _dataset_iterator())) == 1


class _PathLike:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


def test_what_is_not_a_path_is_refused() -> None:
    with pytest.raises(TypeError, match="has to be a path, but got 17"):
        CheckpointHandler().save(17, _dataset_iterator())


def test_a_file_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, handler = _dataset_iterator(), CheckpointHandler()
    handler.save(tmp_path, it)
    before = (tmp_path / "process_0-of-1.json").read_text()
    next(it)

    def fail(*args: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        handler.save(tmp_path, it)
    assert (tmp_path / "process_0-of-1.json").read_text() == before


def test_no_other_files_stay_behind(tmp_path: Path) -> None:
    CheckpointHandler().save(tmp_path, _loader_iterator())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if not name.startswith("pipeline_")] == ["process_0-of-1.json"]


def test_states_may_hold_numpy_numbers(tmp_path: Path) -> None:
    class Iterator(wg.DatasetIterator[int]):
        place = 3

        def __next__(self) -> int:
            self.place += 1
            return self.place

        def get_state(self) -> dict[str, Any]:
            return {"place": np.int64(self.place), "of": np.arange(2)}

        def set_state(self, state: dict[str, Any]) -> None:
            self.place = state["place"]

    it = Iterator()
    CheckpointHandler().save(tmp_path, it)
    next(it)
    assert next(CheckpointHandler().restore(tmp_path, it)) == 4
    state = json.loads((tmp_path / "process_0-of-1.json").read_text())
    assert state == {"place": 3, "of": [0, 1]}


# Restoring starts reading.


def test_a_restored_iterator_reads_ahead_at_once(tmp_path: Path) -> None:
    read = threading.Event()

    class Source:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> int:
            read.set()
            return index

        def __repr__(self) -> str:
            return "Source()"

    it: Any = iter(wg.MapDataset.source(Source()).to_iter_dataset())
    CheckpointHandler().save(tmp_path, it)
    assert not read.is_set()
    CheckpointHandler().restore(tmp_path, it)
    assert read.wait(20)
    assert list(it) == [0, 1, 2, 3, 4]


# Mistakes.


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    handler = CheckpointHandler()
    for directory in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(
            ValueError, match=r"process_0-of-1\.json does not exist.*no iterator state"
        ):
            handler.restore(directory, _dataset_iterator())


def test_files_of_other_processes_are_named(tmp_path: Path) -> None:
    for index in range(2):
        handler = CheckpointHandler(process_index=index, process_count=2)
        handler.save(tmp_path, _dataset_iterator())
    with pytest.raises(
        ValueError,
        match=r"There are process_0-of-2\.json, process_1-of-2\.json.*process 0 of 1.*Elastic",
    ):
        CheckpointHandler().restore(tmp_path, _dataset_iterator())


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "process_0-of-1.json").write_text('{"next_')
    with pytest.raises(ValueError, match=r"process_0-of-1\.json is damaged"):
        CheckpointHandler().restore(tmp_path, _dataset_iterator())


def test_files_of_loaders_and_datasets_are_told_apart(tmp_path: Path) -> None:
    handler = CheckpointHandler()
    for name, it in [("loader", _loader_iterator()), ("dataset", _dataset_iterator())]:
        (tmp_path / name).mkdir()
        next(it)
        handler.save(tmp_path / name, it)
        for description in (tmp_path / name).glob("pipeline_*"):
            description.unlink()  # As Grain writes it.
    with pytest.raises(ValueError, match=r"belongs to a DataLoader's iterator.*of a dataset"):
        handler.restore(tmp_path / "loader", _dataset_iterator())
    with pytest.raises(ValueError, match=r"not one of a DataLoader.*of a dataset's iterator"):
        handler.restore(tmp_path / "dataset", _loader_iterator())


def test_an_iterator_has_to_be_given(tmp_path: Path) -> None:
    for call in (CheckpointHandler().save, CheckpointHandler().restore):
        with pytest.raises(AttributeError):
            call(tmp_path)
    with pytest.raises(AttributeError):
        CheckpointHandler().save(tmp_path, object())


def test_index_and_number_of_processes_belong_together() -> None:
    with pytest.raises(ValueError, match="belong together"):
        CheckpointHandler(process_index=1)
    with pytest.raises(ValueError, match="shard_index=2"):
        CheckpointHandler(process_index=2, process_count=2)


# The rest of what Orbax asks for.


def test_there_is_nothing_more_to_do_or_to_know(tmp_path: Path) -> None:
    handler = CheckpointHandler()
    assert handler.structure(tmp_path) is None
    assert handler.metadata(tmp_path) is None
    handler.finalize(tmp_path)
    handler.close()
    assert CheckpointHandler.typestr() == "wholegrain.checkpoint.handler.CheckpointHandler"


# Without Orbax, and with one that does not work.


def _run(code: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return run.stdout


def test_neither_orbax_nor_jax_is_imported_with_the_package() -> None:
    code = (
        "import sys, wholegrain, wholegrain.python\n"
        "wholegrain.checkpoint.CheckpointHandler, wholegrain.python.GrainCheckpointHandler\n"
        "print([name for name in ('orbax', 'jax', 'etils') if name in sys.modules])\n"
    )
    assert _run(code) == "[]\n"


def test_why_orbax_cannot_be_imported_is_told(tmp_path: Path) -> None:
    package = tmp_path / "orbax" / "checkpoint"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise TypeError('versions do not fit')")
    code = (
        "import wholegrain.checkpoint as c, wholegrain.python as p\n"
        "for module, name in ((c, 'CheckpointSave'), (p, 'PyGrainCheckpointRestore')):\n"
        "    try:\n"
        "        getattr(module, name)\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    printed = _run(code, PYTHONPATH=path).splitlines()
    assert len(printed) == 2
    assert all("TypeError: versions do not fit" in line for line in printed)
