"""JSONL, text, CSV, tar and MDS files: inspect, convert and index."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.tools import complaint, succeed
from tests.sources.test_mds import FIXTURES
from tests.sources.test_tar import files_of, tar_bytes
from wholegrain import sources

pytest.importorskip("pyarrow")

ROWS = [{"n": n, "text": f"text {n}", "list": [n]} for n in range(30)]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHOLEGRAIN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    content = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    Path("a.jsonl").write_bytes(content)
    Path("b.jsonl.gz").write_bytes(gzip.compress(content))
    Path("c.txt").write_bytes(b"one\ntwo\n")
    Path("d.csv").write_bytes(b'x,y\n1,"a\nb"\n2,c\n')
    Path("e.tsv").write_bytes(b"x\ty\n1\t2\n")
    Path("f.bin").write_bytes(tar_bytes(files_of(5)))
    shutil.copytree(FIXTURES / "mds", "g")


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    succeed(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("path", "kind", "count", "names"),
    [
        ("a.jsonl", "jsonl", 30, ["n", "text", "list"]),
        ("b.jsonl.gz", "jsonl", 30, ["n", "text", "list"]),
        ("*.jsonl", "jsonl", 30, ["n", "text", "list"]),
        ("c.txt", "text", 2, []),
        ("d.csv", "csv", 2, ["x", "y"]),
        ("e.tsv", "csv", 1, ["x", "y"]),
        ("f.bin", "tar", 5, ["__key__", "__url__", "jpg", "cls", "meta.json"]),
    ],
)
def test_inspect(
    path: str, kind: str, count: int, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = _json(capsys, "inspect", path)
    assert (found["format"], found["records"]) == (kind, count)
    assert [column["name"] for column in found["schema"]] == names
    succeed("inspect", path)


def test_inspect_mds(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "inspect", "g")
    assert (found["format"], found["records"]) == ("mds", 20)
    assert {"name": "a32", "type": "ndarray:float32"} in found["schema"]


def test_index_builds_side_cars_ahead_of_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _json(capsys, "index", "a.jsonl", "d.csv", "f.bin")
    assert [each["records"] for each in found] == [30, 2, 5]
    assert found[0]["indexes"] == [str(Path(".a.jsonl.jsonl.wgindex").absolute())]
    assert all(Path(place).exists() for each in found for place in each["indexes"])
    monkeypatch.setattr("wholegrain.sources.jsonl.scan_lines", None)
    assert list(sources.JsonlDataSource("a.jsonl")) == ROWS
    succeed("index", "a.jsonl")
    assert "30" in capsys.readouterr().out
    assert "needs no index; only jsonl, text, csv, tar do" in complaint(capsys, "index", "g")


def test_convert_jsonl() -> None:
    succeed("convert", "b.jsonl.gz", "out.parquet", "--workers", "0", "--verify")
    assert [row["n"] for row in sources.ParquetDataSource("out.parquet")] == list(range(30))
    succeed("convert", "a.jsonl", "out.tfrecord", "--workers", "0", "--verify")
    records = list(sources.TFRecordDataSource("out.tfrecord"))
    assert [json.loads(record) for record in records] == ROWS
    succeed("convert", "c.txt", "text.tfrecord", "--workers", "0")
    assert list(sources.TFRecordDataSource("text.tfrecord")) == [b"one", b"two"]


def test_convert_csv_tar_and_mds() -> None:
    succeed("convert", "d.csv", "csv.parquet", "--workers", "0", "--verify")
    rows = list(sources.ParquetDataSource("csv.parquet"))
    assert [row["y"] for row in rows] == ["a\nb", "c"]
    succeed("convert", "f.bin", "tar.parquet", "--workers", "0", "--verify")
    samples = list(sources.ParquetDataSource("tar.parquet"))
    assert [sample["__key__"] for sample in samples] == [f"folder/{n:04d}" for n in range(5)]
    assert samples[4]["cls"] == b"4"
    succeed("convert", "g", "mds.parquet", "--workers", "0", "--verify")
    rows = list(sources.ParquetDataSource("mds.parquet"))
    assert [row["i"] for row in rows] == list(range(-5, 15))
    assert json.loads(rows[3]["j"]) == {"n": 3, "l": [None, 3]}
    assert rows[2]["si"] == str(10**30 + 2)
    np.testing.assert_array_equal(np.stack(list(rows[2]["afix"])), np.full((2, 3), 2))


def test_what_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in complaint(capsys, "inspect", "x.jsonl")
    for name in ("out.jsonl", "out.tar", "out.csv"):
        assert "can be read, but not written" in complaint(capsys, "convert", "a.jsonl", name)
