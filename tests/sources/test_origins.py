"""Origins of records in files: which file, and which record of it."""

import json
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.sources.files import (
    records,
    table,
    write_array_record,
    write_bagz,
    write_parquet,
    write_tfrecord,
)
from wholegrain import sources

X: Any = wg.experimental


def _written(tmp_path: Path, kind: str) -> tuple[Any, list[Path]]:
    """Write two files with 3 and 5 records; return a source of both, and the files."""
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for file, count in zip(files, (3, 5), strict=True):
        match kind:
            case "array_record":
                pytest.importorskip("array_record")
                write_array_record(file, records(count))
            case "tfrecord":
                write_tfrecord(file, records(count))
            case "bagz":
                pytest.importorskip("bagz")
                write_bagz(file, records(count))
            case "parquet":
                pytest.importorskip("pyarrow")
                write_parquet(file, table({"x": list(range(count))}), row_group_size=2)
            case "jsonl":
                file.write_text("".join(json.dumps({"x": n}) + "\n" for n in range(count)))
            case "txt":
                file.write_text("".join(f"line {n}\n" for n in range(count)))
    classes: dict[str, Any] = {
        "array_record": "ArrayRecordDataSource",
        "tfrecord": "TFRecordDataSource",
        "bagz": "BagzDataSource",
        "parquet": "ParquetDataSource",
        "jsonl": "JsonlDataSource",
        "txt": "TextLineDataSource",
    }
    return getattr(sources, classes[kind])([str(file) for file in files]), files


@pytest.mark.parametrize("kind", ["array_record", "tfrecord", "bagz", "parquet", "jsonl", "txt"])
def test_a_record_is_located_in_its_file(tmp_path: Path, kind: str) -> None:
    source, files = _written(tmp_path, kind)
    it = iter(
        wg.MapDataset.source(source).shuffle(seed=1).to_iter_dataset().batch(4, batch_fn=list)
    )
    found = [origin for _ in it for origin in it.provenance()]
    places = {(one.index, one.path, one.path_index) for one in found}
    expected = [(str(files[0]), n) for n in range(3)] + [(str(files[1]), n) for n in range(5)]
    assert places == {(index, *place) for index, place in enumerate(expected)}


def test_a_part_of_an_array_record_file_counts_from_its_start(tmp_path: Path) -> None:
    pytest.importorskip("array_record")
    path = tmp_path / "a.array_record"
    write_array_record(path, records(9))
    it = iter(wg.MapDataset.source(sources.ArrayRecordDataSource(f"{path}[4:9]")))
    next(it)
    (origin,) = it.provenance()
    assert (origin.index, origin.path, origin.path_index) == (0, str(path), 4)


def test_a_file_of_a_folder_is_a_record(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(name.encode())
    it = iter(wg.MapDataset.source(sources.FolderDataSource(str(tmp_path), "*.png")))
    assert [next(it), next(it)] == [b"a", b"b"]
    (origin,) = it.provenance()
    assert origin.path == str(tmp_path / "b.png")
    assert origin.path_index is None


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "txt", "tfrecord"])
def test_files_that_are_read_in_order_number_their_records(tmp_path: Path, kind: str) -> None:
    _, files = _written(tmp_path, kind)
    paths: Any = [str(file) for file in files]
    kinds = {
        "parquet": lambda: X.ParquetIterDataset(paths),
        "jsonl": lambda: X.JsonlIterDataset(paths),
        "txt": lambda: X.TextLineIterDataset(paths),
        "tfrecord": lambda: X.TFRecordIterDataset(paths[1]),
    }
    ds = kinds[kind]()
    it = iter(ds)
    found = [(one.path, one.path_index) for _ in it for one in it.provenance()]
    counts = {paths[0]: 0 if kind == "tfrecord" else 3, paths[1]: 5}
    assert sorted(found) == [(path, n) for path in paths for n in range(counts[path])]
    # From a state in the middle, with no element read before.
    part = iter(ds)
    part.set_state(_state_after(ds, 3))
    next(part)
    if kind == "tfrecord":
        part.step = 4
    (origin,) = part.provenance()
    assert (origin.path, origin.path_index) == found[3]


def _state_after(ds: Any, count: int) -> Any:
    it = iter(ds)
    for _ in range(count):
        next(it)
    return it.get_state()
