import subprocess
import sys
from pathlib import Path

import pytest

import wholegrain
from tests.cli.tools import complaint, environ, run
from wholegrain._cli import main

_COMMANDS = ["demo", "inspect", "convert", "bench", "check"]


def test_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"wholegrain {wholegrain.__version__}\n"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for command in _COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", _COMMANDS)
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: wholegrain {command}")
    assert max(map(len, out.splitlines())) < 110


@pytest.mark.parametrize(
    "arguments",
    [
        ["bake"],
        ["--loud"],
        ["demo", "--steps", "many"],
        ["demo", "--steps", "1"],
        ["demo", "--images", "-5"],
        ["inspect"],
        ["inspect", ""],
        ["inspect", "nothing"],
        ["inspect", "nothing-*.parquet"],
        ["inspect", "nothing@3.array_record"],
        ["inspect", "empty.unknown"],
        ["inspect", "broken.parquet"],
        ["inspect", "broken.arrow"],
        ["inspect", "broken.array_record"],
        ["inspect", "broken.tfrecord"],
        ["inspect", "broken.bagz"],
        ["inspect", "broken.npy"],
        ["inspect", "broken.npz"],
        ["inspect", "broken.npz", "--records", "-1"],
        ["inspect", "empty_folder"],
        ["inspect", "ftp://somewhere/x"],
        ["convert", "nothing"],
        ["convert", "nothing", "x.parquet"],
        ["convert", "broken.parquet", "x.tfrecord"],
        ["convert", "broken.arrow", "x.tfrecord"],
        ["convert", "broken.tfrecord", "x.parquet"],
        ["convert", "broken.array_record", "x.parquet"],
        ["convert", "some.npy", "x"],
        ["convert", "some.npy", "x.npz"],
        ["convert", "some.npy", "x.bagz"],
        ["convert", "some.npy", ""],
        ["convert", "some.npy", "s3://bucket/x.parquet"],
        ["convert", "some.npy", "nowhere/x.parquet"],
        ["convert", "some.npy", "x.parquet", "--to", "csv"],
        ["convert", "some.npy", "x.parquet", "--shards", "0"],
        ["convert", "some.npy", "x@0.parquet"],
        ["convert", "some.npy", "x@2.parquet", "--shards", "3"],
        ["convert", "some.npy", "x.parquet", "--rows", "json"],
        ["convert", "some.npy", "x.parquet", "--rows", "xml"],
        ["convert", "some.npy", "x.parquet", "--workers", "-1"],
        ["bench"],
        ["bench", "no_colon"],
        ["bench", ":x"],
        ["bench", "no_such_module:x"],
        ["bench", "no/such/file.py:x"],
        ["bench", "pipelines.py:nothing"],
        ["bench", "pipelines.py:number"],
        ["bench", "pipelines.py:make_number"],
        ["bench", "pipelines.py:cannot_make"],
        ["bench", "pipelines.py:empty"],
        ["bench", "pipelines.py:failing"],
        ["bench", "does_not_compile.py:x"],
        ["bench", "exits.py:x"],
        ["bench", "pipelines.py:good", "--seconds", "0"],
        ["bench", "pipelines.py:good", "--seconds", "soon"],
        ["check", "pipelines.py:number"],
        ["check", "no_such_module:x"],
        ["check", "imports_nothing.py:x"],
        ["check", "pipelines.py:good", "--elements", "0"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if any(name.startswith(("broken", "some")) for name in arguments):
        for package in ("pyarrow", "array_record", "bagz", "google_crc32c"):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    _write_bad_things(tmp_path)
    before = {file.name for file in tmp_path.iterdir()} - {"__pycache__"}
    complaint(capsys, *arguments)
    after = {file.name for file in tmp_path.iterdir()} - {"__pycache__"}
    assert after == before
    for name in ("pipelines", "does_not_compile", "exits", "imports_nothing"):
        sys.modules.pop(name, None)


def _write_bad_things(folder: Path) -> None:
    for ending in ("parquet", "arrow", "array_record", "tfrecord", "bagz", "npy", "npz"):
        (folder / f"broken.{ending}").write_bytes(b"these are not the bytes you are looking for")
    (folder / "empty.unknown").write_bytes(b"")
    (folder / "empty_folder").mkdir()
    (folder / "some.npy").write_bytes(_npy())
    (folder / "does_not_compile.py").write_text("x = = 3\n")
    (folder / "exits.py").write_text("import sys; sys.exit('over')\n")
    (folder / "imports_nothing.py").write_text("import a_module_that_is_not_there\n")
    (folder / "pipelines.py").write_text(
        "import wholegrain as wg\n"
        "good = wg.MapDataset.range(3)\n"
        "empty = wg.MapDataset.range(3).filter(lambda x: False).to_iter_dataset()\n"
        "failing = wg.MapDataset.range(3).map(lambda x: 1 // 0)\n"
        "number = 3\n"
        "def make_number(): return 3\n"
        "def cannot_make(): raise ValueError('no\\ndata')\n"
    )


def _npy() -> bytes:
    import io

    import numpy as np

    file = io.BytesIO()
    np.save(file, np.arange(6).reshape(3, 2))
    return file.getvalue()


def test_bad_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    code, out, err = run("inspect", "nothing.parquet", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err == "wholegrain inspect: No such file or directory: 'nothing.parquet'.\n"


def test_the_traceback_is_shown_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        main(["--traceback", "inspect", "nothing"])


def test_output_that_nobody_reads_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "some.npy").write_bytes(_npy())
    program = "import sys; from wholegrain._cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "inspect", "some.npy"],
        cwd=tmp_path,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 0
