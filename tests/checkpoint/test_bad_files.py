"""Checkpoints that are damaged, of another pipeline, or cannot be written."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.mutations import directory_mutations
from tests.checkpoint.pipelines import PIPELINES, R, loader, opened, read
from wholegrain._core.difference import difference
from wholegrain.checkpoint import CheckpointHandler


def saved_at(pipeline: Any, step: int, directory: Path) -> Any:
    """Save a checkpoint after `step` elements; return the iterator."""
    it = opened(pipeline, step)
    directory.mkdir(exist_ok=True)
    CheckpointHandler().save(directory, it)
    return it


def check_refused(it: Any, directory: Path, kind: type[Exception], message: str) -> None:
    """Check that a restore fails, and leaves the iterator where it was."""
    before = it.get_state()
    with pytest.raises(kind, match=message):
        CheckpointHandler().restore(directory, it)
    assert it.get_state() == before


@pytest.mark.parametrize("make", [read, loader], ids=["dataset", "loader"])
@given(data=st.data())
def test_a_file_that_was_cut_off_is_refused(
    make: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("checkpoint")
    it = saved_at(make(), 3, directory)
    file = directory / "process_0-of-1.json"
    text = file.read_text()
    file.write_text(text[: data.draw(st.integers(0, len(text) - 1))])
    check_refused(it, directory, ValueError, r"process_0-of-1\.json is damaged: it is not the JSON")
    reference = opened(make(), 3)
    assert next(it) == next(reference)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[1, 2", b"nothing", b"", b"null", b"3"])
@pytest.mark.parametrize("make", [read, loader], ids=["dataset", "loader"])
def test_a_file_of_something_else_is_refused(
    make: Callable[[], Any], content: bytes, tmp_path: Path
) -> None:
    it = saved_at(make(), 3, tmp_path)
    (tmp_path / "process_0-of-1.json").write_bytes(content)
    check_refused(it, tmp_path, ValueError, "is damaged|is a dict, but|A state has to be the JSON")
    reference = opened(make(), 3)
    assert next(it) == next(reference)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_state_of_another_pipeline_is_refused(name: str, tmp_path: Path) -> None:
    it = opened(PIPELINES[name](), 2)
    saved_at(R(50).shuffle(seed=3).batch(2), 3, tmp_path)
    message = "another pipeline|belongs to a DataLoader|dataset's iterator"
    check_refused(it, tmp_path, ValueError, message)
    # Grain's checkpoints do not describe their pipeline.
    (tmp_path / "pipeline_0-of-1.json").unlink()
    (tmp_path / "process_0-of-1.json").write_text(json.dumps({"other": 1}))
    check_refused(it, tmp_path, ValueError, "state is not one of|taken with 0 workers")
    it.close()


def test_a_loaders_state_of_a_later_release_is_refused(tmp_path: Path) -> None:
    it = saved_at(loader(), 3, tmp_path)
    file = tmp_path / "process_0-of-1.json"
    state = json.loads(file.read_text())
    file.write_text(json.dumps({**state, "version": 99}))
    check_refused(it, tmp_path, ValueError, "version 99, but this release .* version 2")


def test_a_description_of_a_later_release_is_not_compared(tmp_path: Path) -> None:
    it = saved_at(read(), 3, tmp_path)
    file = tmp_path / "pipeline_0-of-1.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 99, "stages": []}))
    with pytest.warns(UserWarning, match="was not checked.*a later release wrote it"):
        CheckpointHandler().restore(tmp_path, it)
    assert next(it) == 3


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Take away the rights of root, which are above those of files."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def open_the_way_to(path: Path) -> None:
    """Let everybody look into the directories above `path` that the tests made."""
    for parent in path.parents:
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)


def test_a_directory_that_may_not_be_written_is_an_error(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    it = saved_at(read(), 3, tmp_path)
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    next(it)
    tmp_path.chmod(0o555)
    open_the_way_to(tmp_path)
    request.getfixturevalue("as_nobody")
    with pytest.raises(PermissionError) as caught:
        CheckpointHandler().save(tmp_path, it)
    assert str(tmp_path) in str(caught.value)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before
    assert next(it) == 4
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == 3


def test_a_file_that_may_not_be_read_is_an_error(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    it = saved_at(read(), 3, tmp_path)
    tmp_path.chmod(0o755)
    open_the_way_to(tmp_path)
    (tmp_path / "process_0-of-1.json").chmod(0)
    request.getfixturevalue("as_nobody")
    check_refused(it, tmp_path, PermissionError, "process_0-of-1.json|Permission")
    assert next(it) == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few pages."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small disk: {mounted.stderr.decode()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    file = disk / "everything_else"
    with open(file, "wb", buffering=0) as other:
        try:
            while True:
                other.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return file


def test_a_full_disk_is_an_error_that_harms_nothing(small_disk: Path) -> None:
    directory = small_disk / "checkpoint"
    it = saved_at(read(), 3, directory)
    before = {file.name: file.read_text() for file in directory.iterdir()}
    next(it)
    other = fill(small_disk)
    with pytest.raises(OSError, match="No space left") as caught:
        CheckpointHandler().save(directory, it)
    assert str(directory) in "".join(caught.value.__notes__)
    assert {file.name: file.read_text() for file in directory.iterdir()} == before
    assert next(it) == 4
    CheckpointHandler().restore(directory, it)
    assert next(it) == 3
    other.unlink()
    CheckpointHandler().save(directory, it)
    assert json.loads((directory / "process_0-of-1.json").read_text()) == {"next_index": 4}


_ORBAX_ON_A_FULL_DISK = """
import sys
from pathlib import Path
import orbax.checkpoint as ocp
import wholegrain as wg
from wholegrain.checkpoint import CheckpointRestore, CheckpointSave
from tests.checkpoint.test_bad_files import fill

disk = Path(sys.argv[1])
it = iter(wg.MapDataset.range(40).shuffle(seed=1).to_iter_dataset())
elements = [next(it) for _ in range(3)]
manager = ocp.CheckpointManager(disk / "run", options=ocp.CheckpointManagerOptions(
    enable_async_checkpointing=sys.argv[2] == "async"))
manager.save(3, args=CheckpointSave(it))
manager.wait_until_finished()
elements += [next(it)]
fill(disk)
try:
    manager.save(4, args=CheckpointSave(it))
    manager.wait_until_finished()
except Exception as error:
    print(type(error).__name__, error)
else:
    print("no error")
elements += [next(it), next(it)]  # It goes on.
assert elements == list(wg.MapDataset.range(40).shuffle(seed=1))[:6]
(disk / "everything_else").unlink()
after = ocp.CheckpointManager(disk / "run")
print("steps", after.all_steps())
restored = after.restore(3, args=CheckpointRestore(it))
assert next(restored) == elements[3]
"""


@pytest.mark.skipif(find_spec("orbax") is None, reason="needs Orbax")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_full_disk_leaves_the_checkpoint_that_orbax_wrote_before(
    how: str, small_disk: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _ORBAX_ON_A_FULL_DISK, str(small_disk), how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said, steps = run.stdout.splitlines()
    assert "No space left" in said
    assert steps == "steps [3]"


MUTATIONS = directory_mutations("process_0-of-1.json")


@pytest.mark.parametrize("change", MUTATIONS)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_checkpoint_that_was_changed_is_refused(name: str, change: str, tmp_path: Path) -> None:
    it = saved_at(PIPELINES[name](), 3, tmp_path)
    if name == "elastic" and change.startswith("of "):
        pytest.skip("the state of any process is its own")
    expected = [next(it) for _ in range(3)]
    other = opened(PIPELINES[name](), 3)
    MUTATIONS[change](tmp_path)
    check_refused(other, tmp_path, ValueError, "process_0-of-1|state|State")
    assert difference([next(other) for _ in range(3)], expected) is None


@pytest.mark.parametrize("change", [c for c in MUTATIONS if c not in ("missing", "renamed")])
def test_a_damaged_description_is_refused(change: str, tmp_path: Path) -> None:
    changes = directory_mutations("pipeline_0-of-1.json")
    it = saved_at(read(), 3, tmp_path)
    changes[change](tmp_path)
    if change.startswith("of "):
        return  # Without one there is nothing to compare with: Grain writes none.
    check_refused(it, tmp_path, ValueError, r"pipeline_0-of-1\.json is damaged.*delete the file")


def test_no_directory_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for name in ("read", "elastic", "loader"):
        it = opened(PIPELINES[name](), 3)
        for directory in (tmp_path / "nothing", file):
            check_refused(it, directory, ValueError, "process_0-of-1.json does not exist")


def test_files_are_on_disk_before_they_take_the_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is synced, then renamed; then the directory is synced."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def note_replace(path: Path, target: Any) -> Any:
        events.append(f"rename {path.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    saved_at(read(), 3, tmp_path)
    parts = [f".{name}_0-of-1.json.{os.getpid()}" for name in ("process", "pipeline")]
    assert events == [
        *(f"sync {part}" for part in parts),
        *(f"rename {part}" for part in parts),
        f"sync {tmp_path.name}",
    ]


@pytest.mark.parametrize("interface", ["handler", "coroutines"])
def test_a_save_that_fails_leaves_the_checkpoint_of_before(
    interface: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = saved_at(read(), 3, tmp_path)
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    next(it)

    class Directory:
        async def await_creation(self) -> Path:
            return tmp_path

    async def save() -> None:
        await (await it.save(Directory()))

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def save_by() -> None:
        if interface == "handler":
            CheckpointHandler().save(tmp_path, it)
        else:
            asyncio.run(save())

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output") as caught:
            save_by()
    assert str(tmp_path) in "".join(caught.value.__notes__)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before
