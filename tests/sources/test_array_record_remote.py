"""ArrayRecord files in a store: our reader of the format, and a real S3 server."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from tests.s3_server import s3_bucket
from tests.sources.faulty_proxy import FaultyProxy
from wholegrain.sources import (
    ArrayRecordDataSource,
    Cache,
    DataFileError,
    RemoteOptions,
    set_remote_options,
)
from wholegrain.sources._array_record_object import ArrayRecordObject
from wholegrain.sources._files import LocalFile
from wholegrain.testing import check_iter_dataset, check_source

array_record = pytest.importorskip("array_record.python.array_record_module")
# The server and the clients are other people's code, with warnings of their own.
pytestmark = pytest.mark.filterwarnings("ignore")


def write(path: Path, records: list[bytes], options: str = "group_size:1") -> Path:
    writer = array_record.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def records(count: int, longest: int = 3000) -> list[bytes]:
    rng = np.random.default_rng(count)
    return [rng.bytes(int(rng.integers(longest))) * int(rng.integers(1, 3)) for _ in range(count)]


SETTINGS = ["", "uncompressed", "zstd:3", "brotli", "snappy", "pad_to_block_boundary:true"]


@pytest.mark.parametrize("group_size", [1, 3, 100])
@pytest.mark.parametrize("setting", SETTINGS)
def test_reads_what_the_library_wrote(tmp_path: Path, setting: str, group_size: int) -> None:
    expected = [b"", *records(120), b"", bytes(200_000), b"\0", *records(20, 90_000)]
    options = ",".join(filter(None, [f"group_size:{group_size}", setting]))
    path = write(tmp_path / "a", expected, options)
    reader = ArrayRecordObject(LocalFile(str(path)))
    assert reader.num_records() == len(expected)
    assert f"group_size:{group_size}," in (reader.writer_options_string() or "")
    assert reader.read(0, len(expected)) == expected
    rng = np.random.default_rng(0)
    for _ in range(10):
        wanted = rng.integers(len(expected), size=int(rng.integers(40))).tolist()
        assert reader.read(wanted) == [expected[number] for number in wanted]
    reader.close()


@given(st.lists(st.integers(0, 70_000), max_size=12), st.integers(1, 4), st.sampled_from(SETTINGS))
def test_records_of_any_length(lengths: list[int], group_size: int, setting: str) -> None:
    import tempfile

    expected = [np.random.default_rng(length).bytes(length) for length in lengths]
    with tempfile.TemporaryDirectory() as folder:
        options = ",".join(filter(None, [f"group_size:{group_size}", setting]))
        path = write(Path(folder) / "a", expected, options)
        reader = ArrayRecordObject(LocalFile(str(path)))
        assert reader.read(0, reader.num_records()) == expected
        reader.close()


def test_many_chunks(tmp_path: Path) -> None:
    expected = [str(number).encode() for number in range(60_000)]
    reader = ArrayRecordObject(LocalFile(str(write(tmp_path / "a", expected))))
    assert reader.num_records() == 60_000
    assert reader.read([59_999, 0, 31_234]) == [b"59999", b"0", b"31234"]


def test_damaged_files_are_errors_that_name_the_file(tmp_path: Path) -> None:
    expected = records(30)
    whole = write(tmp_path / "a", expected).read_bytes()
    rng = np.random.default_rng(0)
    told = []
    for trial in range(200):
        data = bytearray(whole)
        kind = trial % 3
        if kind == 0:
            data = data[: int(rng.integers(len(data)))]
        elif kind == 1:
            data[-65536 + int(rng.integers(24, 120))] ^= 1 << int(rng.integers(8))
        else:
            data[int(rng.integers(64, 20_000))] ^= 1 << int(rng.integers(8))
        path = tmp_path / "damaged"
        path.write_bytes(data)
        try:
            reader = ArrayRecordObject(LocalFile(str(path)))
            for number in range(reader.num_records()):
                assert len(reader.read(number, number + 1)) == 1
        except DataFileError as error:
            told.append(str(error))
    assert len(told) > 50
    assert all("damaged'" in text for text in told)


def test_transposed_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t", [b"abc"] * 10, "group_size:5,transpose:true")
    with pytest.raises(DataFileError, match=r"/t'.*transpose"):
        ArrayRecordObject(LocalFile(str(path))).read(0, 1)


@pytest.fixture(name="bucket", scope="module")
def _bucket() -> Iterator[Any]:
    pytest.importorskip("obstore")
    with s3_bucket("data") as client:
        yield client


def upload(bucket: Any, key: str, path: Path) -> str:
    bucket.put_object(Bucket="data", Key=key, Body=path.read_bytes())
    return f"s3://data/{key}"


def test_reads_from_a_store(bucket: Any, tmp_path: Path) -> None:
    expected = records(100)
    for shard in range(2):
        path = write(tmp_path / "a", expected[shard * 50 : (shard + 1) * 50])
        upload(bucket, f"ar/{shard}.array_record", path)
    source = ArrayRecordDataSource("s3://data/ar/*.array_record")
    assert len(source) == 100
    assert list(source) == expected
    assert source.__getitems__([99, 3, 3, 60]) == [expected[i] for i in (99, 3, 3, 60)]
    check_source(source, max_elements=10)
    part = ArrayRecordDataSource("s3://data/ar/1.array_record[5:25]")
    assert list(part) == expected[55:75]
    ds = wg.MapDataset.source(source).to_iter_dataset()
    check_iter_dataset(ds, max_restores=3)
    shuffled = wg.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
    options = wg.MultiprocessingOptions(num_workers=2)
    assert list(shuffled.mp_prefetch(options)) == list(shuffled)


def test_few_requests_and_the_cache(bucket: Any, tmp_path: Path) -> None:
    url = upload(bucket, "few/a.array_record", write(tmp_path / "a", records(200)))
    cache = Cache(str(tmp_path / "cache"), block_bytes=1 << 16)
    with FaultyProxy(bucket.meta.endpoint_url).running() as proxy:
        options: dict[str, Any] = {"endpoint": proxy.address, "deadline_s": 5.0, "timeout_s": 1.0}
        set_remote_options(RemoteOptions(**options), under="s3://data/few/")
        try:
            source = ArrayRecordDataSource(url)
            opened = proxy.counts["passed"]
            assert opened <= 3  # its size, its end, and the rest of the footer
            assert source.__getitems__(range(200)) == records(200)
            assert proxy.counts["passed"] == opened + 1
            set_remote_options(RemoteOptions(**options, cache=cache), under="s3://data/few/")
            source = ArrayRecordDataSource(url)
            assert list(source) == records(200)
            proxy.is_down = True
            assert list(source) == records(200)
        finally:
            set_remote_options(None, under="s3://data/few/")


def test_an_object_that_changes_is_an_error(bucket: Any, tmp_path: Path) -> None:
    url = upload(bucket, "c.array_record", write(tmp_path / "a", [b"old"] * 9))
    source = ArrayRecordDataSource(url)
    unopened = pickle.loads(pickle.dumps(source))
    assert source[0] == b"old"
    upload(bucket, "c.array_record", write(tmp_path / "b", [b"new"] * 9))
    with pytest.raises(DataFileError, match=r"s3://data/c.array_record.*replaced or changed"):
        source[1]
    with pytest.raises(DataFileError, match=r"s3://data/c.array_record' has changed"):
        unopened[1]
    assert list(ArrayRecordDataSource(url)) == [b"new"] * 9


def test_bad_objects_are_named(bucket: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="s3://data/none"):
        ArrayRecordDataSource("s3://data/none")
    (tmp_path / "other").write_bytes(b"x" * 200_000)
    url = upload(bucket, "other", tmp_path / "other")
    with pytest.raises(RuntimeError, match="s3://data/other' cannot be read as an ArrayRecord"):
        ArrayRecordDataSource(url)
