"""Formats with an index in a store: a real S3 server on this machine."""

import gzip
import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.tools import succeed
from tests.s3_server import s3_bucket
from tests.sources.faulty_proxy import FaultyProxy
from tests.sources.test_jsonl import CONTENT, ROWS
from tests.sources.test_mds import FIXTURES
from tests.sources.test_tar import expected, files_of, tar_bytes
from wholegrain.experimental import JsonlIterDataset, TarIterDataset
from wholegrain.sources import (
    Cache,
    CsvDataSource,
    DataFileError,
    JsonlDataSource,
    MdsDataSource,
    RemoteOptions,
    TarDataSource,
    set_remote_options,
)
from wholegrain.testing import check_iter_dataset, check_source

# The server and the clients are other people's code, with warnings of their own.
pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("obstore")


@pytest.fixture(name="bucket", scope="module")
def _bucket() -> Iterator[Any]:
    with s3_bucket("data") as client:
        yield client


def upload(bucket: Any, key: str, content: bytes) -> str:
    bucket.put_object(Bucket="data", Key=key, Body=content)
    return f"s3://data/{key}"


@pytest.mark.parametrize("zipped", [False, True])
def test_jsonl(zipped: bool, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress(CONTENT) if zipped else CONTENT
    url = upload(bucket, "a.jsonl", content)
    source = JsonlDataSource(url)
    assert list(source) == ROWS
    assert source.__getitems__([150, 3, 3, 0, 7]) == [ROWS[i] for i in (150, 3, 3, 0, 7)]
    check_source(source, max_elements=10)
    ds = JsonlIterDataset(url)
    assert list(ds) == ROWS
    check_iter_dataset(ds, max_restores=3)
    # The index is in the cache folder, and valid for the next run.
    assert len(list((tmp_path / "cache" / "index").iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr("wholegrain.sources.jsonl.scan_lines", None)
        assert list(JsonlDataSource(url)) == ROWS
    # Another object at the same address is noticed.
    upload(bucket, "a.jsonl", content[:-1])
    unopened = pickle.loads(pickle.dumps(source))
    with pytest.raises(DataFileError, match=r"s3://data/a.jsonl' has changed"):
        unopened[0]
    if not zipped:
        assert list(JsonlDataSource(url)) == ROWS


def test_an_index_that_was_uploaded_is_used(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(CONTENT)
    JsonlDataSource(path)
    url = upload(bucket, "b.jsonl", CONTENT)
    name = ".b.jsonl.jsonl.wgindex"
    upload(bucket, name, (tmp_path / name).read_bytes())
    monkeypatch.setattr("wholegrain.sources.jsonl.scan_lines", None)
    source = JsonlDataSource(url)
    assert list(source) == ROWS
    # It was saved, so the store is not asked again.
    assert len(pickle.dumps(source)) < 1000
    bucket.delete_object(Bucket="data", Key=name)
    assert list(JsonlDataSource(url)) == ROWS
    assert JsonlDataSource(url).index_files == source.index_files
    succeed("index", url)


@pytest.mark.parametrize("copied", [False, True])
def test_an_index_of_an_earlier_object_is_not_used(
    copied: bool, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a large object whose changes are between the parts that the checksum covers.
    monkeypatch.setattr("wholegrain.sources._identity._parts", lambda size: ([0], [4]))
    monkeypatch.setattr("wholegrain.sources._content._LARGEST_FRAME", 1000)
    rows = [[1], *range(1000)]
    for now in (rows, [[1], *reversed(rows[1:])]):
        content = "".join(f"{row}\n" for row in now).encode()
        url = upload(bucket, "c.jsonl", gzip.compress(content, 0, mtime=0) if copied else content)
        assert list(JsonlDataSource(url)) == now
        assert list(JsonlDataSource(url)) == now


def test_no_index_is_saved_for_a_store_without_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pytest.importorskip("fsspec").filesystem("memory")

    def unknown(self: Any, path: str) -> None:
        raise NotImplementedError

    monkeypatch.setattr(type(store), "modified", unknown)  # Some stores tell no time.
    for content in (b"1\n22\n", b"11\n2\n"):
        store.pipe("/indexed/a.jsonl", content)
        source = JsonlDataSource("memory://indexed/a.jsonl")
        assert source.index_files == [None]
        again = pickle.loads(pickle.dumps(source))
        assert list(again) == list(map(int, content.split()))
    assert not (tmp_path / "cache" / "index").exists()


def test_an_index_is_built_from_cached_blocks_while_the_store_is_down(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wholegrain.sources._cached._PATIENCE_S", 0.5)
    monkeypatch.setattr("wholegrain.sources._cached._away_until", {})
    url = upload(bucket, "d.jsonl", CONTENT)
    with FaultyProxy(bucket.meta.endpoint_url).running() as proxy:
        options = RemoteOptions(
            endpoint=proxy.address, deadline_s=30, cache=Cache(str(tmp_path / "blocks"))
        )
        set_remote_options(options, under="s3://data/")
        try:
            (place,) = JsonlDataSource(url).index_files
            assert place is not None
            Path(place).unlink()
            proxy.is_down, proxy.hang_s = True, 0.2
            started = time.monotonic()
            assert list(JsonlDataSource(url)) == ROWS
            assert time.monotonic() - started < 15
        finally:
            set_remote_options(None, under="s3://data/")


def test_tar_csv_and_mds(bucket: Any) -> None:
    files = files_of(20)
    url: Any = upload(bucket, "a.tar", tar_bytes(files))
    assert list(TarDataSource(url)) == expected(files, url)
    assert list(TarIterDataset(url)) == expected(files, url)
    check_source(TarDataSource(url), max_elements=5)
    url = upload(bucket, "a.csv", b'x,y\n1,"2\n3"\n')
    assert list(CsvDataSource(url)) == [{"x": "1", "y": "2\n3"}]
    for name in ("mds", "mds-zstd"):
        for file in (FIXTURES / name).iterdir():
            upload(bucket, f"{name}/{file.name}", file.read_bytes())
        source = MdsDataSource(f"s3://data/{name}")
        assert [sample["i"] for sample in source] == list(range(-5, 15))
        check_source(source, max_elements=5)


def test_inspect_finds_shards_in_a_store(bucket: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (FIXTURES / "mds").iterdir():
        upload(bucket, f"shards/{file.name}", file.read_bytes())
    succeed("inspect", "s3://data/shards/", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["records"]) == ("mds", 20)


def test_missing_objects_are_named(bucket: Any) -> None:
    for source in (JsonlDataSource, TarDataSource, CsvDataSource, MdsDataSource):
        with pytest.raises(FileNotFoundError, match="missing"):
            source("s3://data/missing")
    bad = upload(bucket, "bad.jsonl", json.dumps({"a": 1}).encode() + b"\n{\n")
    with pytest.raises(DataFileError, match=r"s3://data/bad.jsonl', line 2"):
        JsonlDataSource(bad)[1]
