import contextlib
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.files import damaged, survives, table, write_arrow, write_parquet
from tests.sources.test_parquet import COLUMNS, COLUMNS_TABLE, example
from wholegrain._core.difference import difference
from wholegrain.sources import ArrowDataSource, ParquetDataSource
from wholegrain.testing import check_source

pa: Any = pytest.importorskip("pyarrow")


@pytest.mark.parametrize("stream", [False, True])
def test_reads_rows_as_dicts_in_any_order(tmp_path: Path, stream: bool) -> None:
    source = ArrowDataSource(write_arrow(tmp_path / "a", example(30), stream=stream))
    keys = random.Random(0).choices(range(30), k=100)
    assert [row["number"] for row in source.__getitems__(keys)] == keys
    assert source[4]["text"] is None
    check_source(source)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_of_parquet(tmp_path: Path, name: str, missing: bool) -> None:
    kind, values = COLUMNS[name]
    data = table({name: [*values, None, *values] if missing else values * 2}, **{name: kind})
    expected = list(ParquetDataSource(write_parquet(tmp_path / "p", data, 3)))
    source = ArrowDataSource(write_arrow(tmp_path / "a", data, 3))
    for rows in (list(source), [source[i] for i in range(len(source))]):
        assert difference(rows, expected) is None
        kinds = [type(row[name]) for row in rows]
        assert kinds == [type(row[name]) for row in expected]
    check_source(source)


def test_files_follow_each_other_with_the_columns_asked_for(tmp_path: Path) -> None:
    write_arrow(tmp_path / "a.arrow", example(10))
    write_arrow(tmp_path / "b.arrow", example(5, start=10), stream=True)
    source = ArrowDataSource(str(tmp_path / "*.arrow"), columns=["good", "number"])
    assert [row["number"] for row in source] == list(range(15))
    assert list(source[0]) == ["good", "number"]
    check_source(source)


def test_reads_compressed_batches(tmp_path: Path) -> None:
    data = table({"x": ["text " * 100] * 50, "y": list(range(50))})
    path = tmp_path / "a"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, data.schema, options=options) as writer,
    ):
        writer.write_table(data, max_chunksize=10)
    source = ArrowDataSource(path, cache_bytes=6000)
    assert [row["y"] for row in source] == list(range(50))
    assert source._pieces.nbytes <= 6000
    check_source(source)


def test_batches_that_are_slices_are_read_right(tmp_path: Path) -> None:
    data = example(40).slice(3, 30)
    source = ArrowDataSource(write_arrow(tmp_path / "a", data, 7))
    assert [row["number"] for row in source] == list(range(3, 33))
    assert [len(row["tokens"]) for row in source] == [i % 4 for i in range(3, 33)]
    assert source[1]["text"] is None


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    source = ArrowDataSource(write_arrow(tmp_path / "a", example(0)))
    assert len(source) == 0
    assert list(source) == []


def test_a_forked_child_reads_too(tmp_path: Path) -> None:
    source = ArrowDataSource(write_arrow(tmp_path / "a", example(30)))
    list(source)
    child = os.fork()
    if child == 0:
        os._exit(0 if [row["number"] for row in source] == list(range(30)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_repr_names_the_files(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a", example(3))
    assert repr(ArrowDataSource(path)) == f"ArrowDataSource({str(path)!r}, len=3)"


def test_a_file_cut_off_or_of_another_format_is_named(tmp_path: Path) -> None:
    whole = write_arrow(tmp_path / "whole", example(30)).read_bytes()
    other = tmp_path / "damaged"
    for content in (b"", b"abc", b"x" * 1000, *(whole[:i] for i in range(1, len(whole), 97))):
        other.write_bytes(content)
        with pytest.raises(ValueError, match="damaged' cannot be read as an Arrow file"):
            ArrowDataSource(other)


def test_a_missing_file_or_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        ArrowDataSource(tmp_path / "missing")
    path = write_arrow(tmp_path / "a", example(3))
    with pytest.raises(ValueError, match="no column 'txt'"):
        ArrowDataSource(path, columns=["txt"])
    with pytest.raises(ValueError, match="at least one path"):
        ArrowDataSource([])
    with pytest.raises(TypeError, match="Hugging Face"):
        ArrowDataSource(5)


def test_files_with_different_columns_are_refused(tmp_path: Path) -> None:
    first = write_arrow(tmp_path / "first", table({"x": [1]}))
    second = write_arrow(tmp_path / "second", table({"x": ["1"]}))
    with pytest.raises(ValueError, match=r"first' has x: int64.*second' has x: string"):
        ArrowDataSource([first, second])


@pytest.mark.parametrize("stream", [False, True])
def test_damage_never_ends_the_process(tmp_path: Path, stream: bool) -> None:
    whole = write_arrow(tmp_path / "a", COLUMNS_TABLE, 2, stream=stream).read_bytes()
    rng = random.Random(0)
    path = tmp_path / "damaged"

    def read_damaged() -> None:
        for _ in range(150):
            path.write_bytes(damaged(whole, rng))
            with contextlib.suppress(ValueError, OSError, MemoryError, NotImplementedError):
                list(ArrowDataSource(path))

    assert survives(read_damaged)


# Hugging Face datasets.


@pytest.fixture(name="datasets")
def _datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


def test_reads_hugging_face_datasets_as_they_are(datasets: Any, tmp_path: Path) -> None:
    rows = {"x": list(range(40)), "t": [f"t{i}" for i in range(40)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    dataset = datasets.load_from_disk(str(tmp_path / "saved"))
    source = ArrowDataSource(dataset)
    assert source[3] == {"x": 3, "t": "t3"} == dataset[3]
    assert [row["x"] for row in source.__getitems__([39, 0, 5, 5, 1])] == [39, 0, 5, 5, 1]
    assert repr(source) == repr(ArrowDataSource(datasets.load_from_disk(str(tmp_path / "saved"))))
    assert "at 0x" not in repr(source)
    assert len(pickle.dumps(source)) < 5000
    check_source(source)
    check_source(ArrowDataSource(dataset, columns=["x"]))
    assert ArrowDataSource(dataset, columns=["x"])[0] == {"x": 0}
    check_source(ArrowDataSource(dataset.shuffle(seed=1).with_format("numpy")))


def test_reads_the_files_of_hugging_face_datasets(datasets: Any, tmp_path: Path) -> None:
    rows = {"x": np.arange(2500), "t": [f"t{i}" for i in range(2500)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"), num_shards=2)
    source = ArrowDataSource(str(tmp_path / "saved" / "*.arrow"))
    assert [row["x"] for row in source] == list(range(2500))
    assert source[2000]["t"] == "t2000"
