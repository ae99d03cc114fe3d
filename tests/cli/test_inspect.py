import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.tools import complaint, run, succeed
from tests.sources import files
from wholegrain._cli import example, main

_RECORDS = [b"\xff\xd8\xff some JPEG", b'{"a": 1}', b"a text", b""]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    succeed("inspect", *arguments, "--json")
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("library", "write", "ending"),
    [
        ("array_record", files.write_array_record, "array_record"),
        ("google_crc32c", files.write_tfrecord, "tfrecord"),
        ("bagz", files.write_bagz, "bagz"),
    ],
)
def test_records_of_bytes(
    library: str, write: Any, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    path = write(Path(f"x.{ending}"), _RECORDS)
    found = _inspect(capsys, str(path))
    assert found["format"] == ending
    assert found["records"] == 4
    assert found["bytes"] == path.stat().st_size
    assert found["record_bytes"] == {"sampled": 4, "least": 0, "mean": 6.75, "most": 13}
    assert [record["kind"] for record in found["first"]] == ["JPEG image", "JSON", "text"]
    assert found["schema"] == []


@pytest.mark.parametrize("ending", ["array_record", "tfrecord", "parquet"])
def test_the_content_decides_not_the_name(ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("array_record")
    pytest.importorskip("pyarrow")
    path = Path("x.bin")
    if ending == "parquet":
        files.write_parquet(path, files.table({"a": [1]}))
    elif ending == "tfrecord":
        files.write_tfrecord(path, _RECORDS)
    else:
        files.write_array_record(path, _RECORDS)
    assert _inspect(capsys, "x.bin")["format"] == ending


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_rows_of_columns(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    table = files.table({"text": ["a", "b", None], "items": [[1], [], [2, 3]]})
    if kind == "parquet":
        path = files.write_parquet(Path("x.parquet"), table)
    else:
        path = files.write_arrow(Path("x.arrow"), table, stream=kind == "stream")
    found = _inspect(capsys, str(path))
    assert found["format"] == ("parquet" if kind == "parquet" else "arrow")
    assert [column["name"] for column in found["schema"]] == ["text", "items"]
    assert found["schema"][0]["type"] == "string"
    assert [row["text"] for row in found["first"]] == ["a", "b", None]


def test_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros((5, 2, 3), np.float32))
    assert _inspect(capsys, "x.npy")["schema"] == [{"name": "", "type": "float32[2, 3]"}]
    np.savez("x.npz", a=np.zeros(4), b=np.arange(4, dtype=np.int8))
    found = _inspect(capsys, "x.npz")
    assert found["schema"] == [{"name": "a", "type": "float64"}, {"name": "b", "type": "int8"}]
    assert found["records"] == 4


def test_a_folder_of_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in/sub").mkdir(parents=True)
    Path("in/sub/b.txt").write_text("bb")
    Path("in/a.txt").write_text("a")
    found = _inspect(capsys, "in")
    assert (found["format"], found["records"], found["bytes"]) == ("folder", 2, 3)
    succeed("inspect", "in")
    assert "sub/b.txt" in capsys.readouterr().out


def test_a_folder_of_shards_is_one_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in").mkdir()
    for shard in range(3):
        name = f"in/train.tfrecord-{shard:05d}-of-00003"
        files.write_tfrecord(Path(name), [f"shard {shard}".encode()] * 2)
    Path("in/dataset_info.json").write_text("{}")
    for path in ("in", "in/train.tfrecord@3", "in/train*"):
        found = _inspect(capsys, path)
        assert (found["format"], found["records"], len(found["files"])) == ("tfrecord", 6, 3)


def test_a_folder_of_tables_is_one_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in").mkdir()
    for number in range(3):
        Path(f"in/{number}.csv").write_text("a,b\n1,2\n")
    Path("in/README.txt").write_text("Tables.")
    found = _inspect(capsys, "in")
    assert (found["format"], found["records"], len(found["files"])) == ("csv", 3, 3)
    # Next to other files, tables are lists or labels.
    Path("in/text.txt").write_text("a\n")
    assert _inspect(capsys, "in")["format"] == "folder"
    Path("in/text.txt").unlink()
    Path("in/x.jsonl").write_text("1\n2\n")
    found = _inspect(capsys, "in")
    assert (found["format"], found["records"]) == ("jsonl", 2)


def test_examples_have_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        example.encode({"label": (example.INT64, [n]), "x": (example.FLOAT, [0.5] * (n + 1))})
        for n in range(3)
    ]
    files.write_tfrecord(Path("x.tfrecord"), records)
    found = _inspect(capsys, "x.tfrecord")
    assert found["schema"] == [{"name": "label", "type": "int64"}, {"name": "x", "type": "float[]"}]
    succeed("inspect", "x.tfrecord")
    assert "tf.train.Example" in capsys.readouterr().out


def test_a_hugging_face_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_dict({"a": [1, 2, 3]})
    datasets.DatasetDict({"train": dataset}).save_to_disk("in")
    assert "train" in complaint(capsys, "inspect", "in")
    found = _inspect(capsys, "in/train")
    assert (found["format"], found["records"]) == ("arrow", 3)
    assert "Hugging Face" in found["note"]


def test_a_table_for_people_in_a_pipe_has_no_colours(tmp_path: Path) -> None:
    np.save("x.npy", np.arange(3))
    code, out, err = run("inspect", "x.npy", "--records", "1", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.splitlines()[:3] == ["x.npy", "  format   npy", "  records  3"]


@pytest.mark.parametrize("name", ["\x1b[31mred", "two\nlines", "\x9b2J", "\u202eleft", "\x07"])
def test_nothing_in_a_file_commands_the_terminal(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    path = files.write_parquet(tmp_path / "a.parquet", files.table({name: ["\x1b]0;title\x07"]}))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / name).write_bytes(b"\x1b[2J text")
    for argument in (path, tmp_path / "b", tmp_path / name):
        main(["inspect", str(argument)])
    printed = "".join(capsys.readouterr())
    assert all(character.isprintable() or character == "\n" for character in printed)
    assert repr(name)[1:-1] in printed
