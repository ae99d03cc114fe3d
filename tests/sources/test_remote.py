"""Files in a store: a real S3 server on this machine, and each library that can speak to it."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import s3_bucket
from tests.sources.files import records, write_arrow, write_parquet, write_tfrecord
from tests.sources.test_parquet import example
from wholegrain.experimental import ParquetIterDataset, TFRecordIterDataset
from wholegrain.sources import (
    ArrowDataSource,
    FolderDataSource,
    ParquetDataSource,
    TFRecordDataSource,
    _remote,
)
from wholegrain.testing import check_iter_dataset, check_source

# The server and the clients are other people's code, with warnings of their own.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(name="bucket", scope="module")
def _bucket() -> Iterator[Any]:
    with s3_bucket("data") as client:
        yield client


@pytest.fixture(name="library", params=["obstore", "s3fs"], autouse=True)
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    library: str = request.param
    pytest.importorskip(library)
    monkeypatch.setattr(_remote, "_stores", {})
    if library != "obstore":
        monkeypatch.setattr(_remote, "_OBSTORE_SCHEMES", frozenset())
    return library


def upload(bucket: Any, key: str, path: Path) -> str:
    bucket.put_object(Bucket="data", Key=key, Body=path.read_bytes())
    return f"s3://data/{key}"


def test_reads_parquet(bucket: Any, tmp_path: Path) -> None:
    for shard in range(2):
        path = write_parquet(tmp_path / f"{shard}", example(10, 10 * shard))
        upload(bucket, f"parquet/{shard}.parquet", path)
    source = ParquetDataSource("s3://data/parquet/*.parquet")
    assert source.paths == ["s3://data/parquet/0.parquet", "s3://data/parquet/1.parquet"]
    assert [row["number"] for row in source] == list(range(20))
    check_source(source)
    ds = ParquetIterDataset("s3://data/parquet/1.parquet")
    assert [row["number"] for row in ds] == list(range(10, 20))
    check_iter_dataset(ds, max_restores=4)


def test_reads_tfrecords(bucket: Any, tmp_path: Path) -> None:
    url = upload(bucket, "a.tfrecord", write_tfrecord(tmp_path / "a", records(30)))
    source = TFRecordDataSource(url)
    assert list(source) == records(30)
    assert source.__getitems__([29, 3, 3, 0, 7]) == [records(30)[i] for i in (29, 3, 3, 0, 7)]
    check_source(source, max_elements=10)
    ds = TFRecordIterDataset(url)
    assert list(ds) == records(30)
    check_iter_dataset(ds, max_restores=4)


def test_reads_arrow(bucket: Any, tmp_path: Path) -> None:
    for stream in (False, True):
        path = write_arrow(tmp_path / f"{stream}", example(10), stream=stream)
        source = ArrowDataSource(upload(bucket, f"{stream}.arrow", path))
        assert [row["number"] for row in source] == list(range(10))
        check_source(source)


def test_reads_folders(bucket: Any, tmp_path: Path) -> None:
    for name in ("b/2.png", "a/1.png", "a/note.txt"):
        (tmp_path / "file").write_bytes(name.encode())
        upload(bucket, f"folder/{name}", tmp_path / "file")
    source = FolderDataSource("s3://data/folder", "**/*.png")
    assert source.names == ["a/1.png", "b/2.png"]
    assert source.__getitems__([1, 0]) == [b"b/2.png", b"a/1.png"]
    assert list(pickle.loads(pickle.dumps(source))[0]) == list(b"a/1.png")
    check_source(source)


def test_missing_objects_are_named(bucket: Any, tmp_path: Path) -> None:
    for url in ("s3://data/missing", "s3://data/missing-*"):
        for source in (ParquetDataSource, TFRecordDataSource, ArrowDataSource):
            with pytest.raises(FileNotFoundError, match="missing"):
                source(url)
    with pytest.raises(FileNotFoundError, match="missing"):
        FolderDataSource("s3://data/missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        list(TFRecordIterDataset("s3://data/missing"))


def test_objects_cut_off_are_named(bucket: Any, tmp_path: Path) -> None:
    path = tmp_path / "cut"
    whole = write_parquet(path, example(10)).read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises((ValueError, OSError), match="s3://data/cut"):
        ParquetDataSource(upload(bucket, "cut", path))
    path.write_bytes(write_tfrecord(path, records(5)).read_bytes()[:-3])
    with pytest.raises(ValueError, match="s3://data/cut"):
        TFRecordDataSource(upload(bucket, "cut", path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_reads_too(bucket: Any, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")  # what a child uses whose parent has used obstore
    url = upload(bucket, "fork.tfrecord", write_tfrecord(tmp_path / "a", records(10)))
    source = TFRecordDataSource(url)
    assert list(source) == records(10)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)
        os._exit(0 if list(source) == records(10) else 1)
    assert os.waitpid(child, 0)[1] == 0
