"""Objects in a store that answers badly: a real S3 server, and a proxy that fails at random."""

import gzip
import http.server
import logging
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.s3_server import s3_bucket
from tests.sources.faulty_proxy import FAULTS, FaultyProxy
from tests.sources.files import records, write_array_record, write_parquet, write_tfrecord
from tests.sources.test_jsonl import CONTENT, ROWS
from tests.sources.test_mds import FIXTURES
from tests.sources.test_parquet import example
from tests.sources.test_tar import FIXTURE as TAR
from wholegrain.experimental import JsonlIterDataset
from wholegrain.sources import (
    ArrayRecordDataSource,
    CsvDataSource,
    FolderDataSource,
    JsonlDataSource,
    MdsDataSource,
    ParquetDataSource,
    RemoteOptions,
    TarDataSource,
    TFRecordDataSource,
    set_remote_options,
)
from wholegrain.sources._files import open_file, read_all
from wholegrain.sources.remote_options import options_for
from wholegrain.testing.checks import assert_equal

pytestmark = [pytest.mark.filterwarnings("ignore")]
pytest.importorskip("obstore")


@pytest.fixture(name="bucket", scope="module")
def _bucket() -> Iterator[Any]:
    with s3_bucket("data") as client:
        yield client


@pytest.fixture(name="proxy")
def _proxy(bucket: Any) -> Iterator[FaultyProxy]:
    with FaultyProxy(bucket.meta.endpoint_url).running() as proxy:
        yield proxy
    set_remote_options(None, under="s3://data/")


def use(proxy: FaultyProxy, **options: Any) -> None:
    options = {"timeout_s": 1.0, "deadline_s": 60.0, "max_pause_s": 0.2, **options}
    set_remote_options(RemoteOptions(endpoint=proxy.address, **options), under="s3://data/")


def upload(bucket: Any, key: str, data: bytes) -> str:
    bucket.put_object(Bucket="data", Key=key, Body=data)
    return f"s3://data/{key}"


@pytest.mark.parametrize("seed", range(2))
def test_an_epoch_through_a_bad_network_is_complete(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path, seed: int
) -> None:
    url = upload(bucket, "a.tfrecord", write_tfrecord(tmp_path / "a", records(60)).read_bytes())
    use(proxy)
    proxy.share, proxy.random = 0.3, random.Random(seed)
    source = TFRecordDataSource(url)
    ds = wg.MapDataset.source(source).shuffle(seed=seed).to_iter_dataset()
    assert sorted(ds) == sorted(records(60))
    table = write_parquet(tmp_path / "p", example(40), row_group_size=5).read_bytes()
    rows = ParquetDataSource(upload(bucket, "p.parquet", table))
    assert [row["number"] for row in rows] == list(range(40))
    assert sum(proxy.counts.values()) > proxy.counts["passed"] > 0


def test_every_format_is_read_through_a_bad_network(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    upload(bucket, "formats/a.jsonl", CONTENT)
    upload(bucket, "formats/a.jsonl.gz", gzip.compress(CONTENT))
    upload(bucket, "formats/a.csv", b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(50)))
    upload(bucket, "formats/a.tar", TAR.read_bytes())
    for file in sorted((FIXTURES / "mds-zstd").iterdir()):
        upload(bucket, f"formats/mds/{file.name}", file.read_bytes())
    records_file = write_array_record(tmp_path / "a.array_record", records(40))
    upload(bucket, "formats/a.array_record", Path(records_file).read_bytes())
    use(proxy, hedge_after_s=0.5)
    proxy.share, proxy.faults = 0.2, tuple(fault for fault in FAULTS if fault != "hang")
    base = "s3://data/formats/"
    assert list(JsonlDataSource(f"{base}a.jsonl")) == ROWS
    assert list(JsonlDataSource(f"{base}a.jsonl.gz")) == ROWS
    assert list(JsonlIterDataset(f"{base}a.jsonl")) == ROWS
    assert [row["a"] for row in CsvDataSource(f"{base}a.csv")] == [str(n) for n in range(50)]
    samples = [*TarDataSource(f"{base}a.tar")]
    assert [{**sample, "__url__": ""} for sample in samples] == [
        {**sample, "__url__": ""} for sample in TarDataSource(TAR)
    ]
    local = list(MdsDataSource(FIXTURES / "mds-zstd"))
    for found, sample in zip(MdsDataSource(f"{base}mds"), local, strict=True):
        assert_equal(sample, found, "a sample")
    assert list(ArrayRecordDataSource(f"{base}a.array_record")) == records(40)
    assert sum(proxy.counts.values()) > proxy.counts["passed"] > 0


def test_workers_do_not_list_a_pattern_again(bucket: Any, proxy: FaultyProxy) -> None:
    for number in range(4):
        upload(bucket, f"listed/{number}.jsonl", b"%d\n" % number)
    use(proxy)
    listed = proxy.counts["list"]
    source = JsonlDataSource("s3://data/listed/*.jsonl")
    ds = wg.MapDataset.source(source).to_iter_dataset()
    assert list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))) == [0, 1, 2, 3]
    assert proxy.counts["list"] == listed + 1


@pytest.mark.parametrize("fault", ["drop", "reset", "truncate", "503", "429", "hang"])
def test_each_fault_is_overcome(bucket: Any, proxy: FaultyProxy, fault: str) -> None:
    data = np.random.default_rng(0).bytes(100_000)
    upload(bucket, "folder/x.bin", data)
    use(proxy, timeout_s=0.5)
    source = FolderDataSource("s3://data/folder")
    proxy.hang_s = 2.0
    proxy.share, proxy.faults = 0.6, (fault,)
    assert [source[0] for _ in range(4)] == [data] * 4
    assert proxy.counts[fault] > 0


def test_a_slow_answer_is_overtaken_by_a_second_request(bucket: Any, proxy: FaultyProxy) -> None:
    url = upload(bucket, "slow", b"x" * 1000)
    use(proxy, timeout_s=20.0, hedge_after_s=0.1)
    file = open_file(url)
    proxy.faults, proxy.hang_s = ("hang",), 10.0
    proxy.share = 1.0

    def heal() -> None:
        while not proxy.counts["hang"]:
            time.sleep(0.01)
        proxy.share = 0.0  # The first request hangs, the second passes.

    threading.Thread(target=heal).start()
    began = time.monotonic()
    assert file.read(10, 20) == b"x" * 20
    assert time.monotonic() - began < 8
    assert proxy.counts["hang"] == 1


def test_a_store_that_never_answers_is_an_error_at_the_deadline(
    bucket: Any, proxy: FaultyProxy
) -> None:
    url = upload(bucket, "gone.tfrecord", b"")
    use(proxy, timeout_s=0.3, deadline_s=1.0)
    proxy.is_down = True
    began = time.monotonic()
    with pytest.raises(OSError, match=r"attempts in .* s; `RemoteOptions.*s3://data/gone"):
        TFRecordDataSource(url)
    assert time.monotonic() - began < 30


def test_an_outage_shorter_than_the_deadline_is_waited_for(
    bucket: Any, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr("wholegrain.sources._requests._QUIET_S", 0.2)
    url = upload(bucket, "b.bin", b"abc")
    use(proxy, timeout_s=0.2)
    proxy.is_down, proxy.hang_s = True, 0.3

    def come_back() -> None:
        time.sleep(1.5)
        proxy.is_down = False

    threading.Thread(target=come_back).start()
    with caplog.at_level(logging.WARNING, logger="wholegrain"):
        assert read_all(url) == b"abc"
    assert any("s3://data/b.bin" in record.getMessage() for record in caplog.records)


def test_answers_that_will_not_change_are_not_asked_for_again(
    bucket: Any, proxy: FaultyProxy
) -> None:
    use(proxy)
    with pytest.raises(FileNotFoundError, match="s3://data/missing"):
        TFRecordDataSource("s3://data/missing")
    assert proxy.counts["passed"] == 1


def test_an_object_that_is_replaced_while_it_is_open_is_an_error(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    use(proxy)
    url = upload(bucket, "c", write_tfrecord(tmp_path / "c", records(9)).read_bytes())
    source = TFRecordDataSource(url)
    assert source[3] == records(9)[3]
    changed = [record[::-1] for record in records(9)]
    upload(bucket, "c", write_tfrecord(tmp_path / "c2", changed).read_bytes())
    with pytest.raises(ValueError, match=r"s3://data/c.*replaced or changed"):
        source[4]


def test_a_signal_interrupts_a_read_that_waits(bucket: Any, proxy: FaultyProxy) -> None:
    url = upload(bucket, "d", b"x" * 100)
    use(proxy, timeout_s=30.0)
    proxy.is_down, proxy.hang_s = True, 5.0

    def interrupt(*_: Any) -> None:
        raise InterruptedError("time is up")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        began = time.monotonic()
        with pytest.raises(InterruptedError, match="time is up"):
            read_all(url)
        assert time.monotonic() - began < 4
    finally:
        signal.signal(signal.SIGALRM, before)


def test_workers_use_the_options_of_the_program(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_tfrecord(tmp_path / "w", records(20)).read_bytes()
    use(proxy)
    source = TFRecordDataSource(upload(bucket, "w", data))
    # Only the options know where the server is.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    passed = proxy.counts["passed"]
    ds = wg.MapDataset.source(source).to_iter_dataset()
    assert list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))) == records(20)
    assert proxy.counts["passed"] > passed


def test_all_reads_share_the_connections_of_the_process(bucket: Any, proxy: FaultyProxy) -> None:
    content = bytes(range(256)) * 8192
    url = upload(bucket, "many", content)
    use(proxy)
    file = open_file(url)
    starts = list(range(0, len(content), 100_000)) * 5
    random.Random(0).shuffle(starts)
    with ThreadPoolExecutor(20) as pool:
        parts = list(pool.map(lambda _: file.read_ranges(starts, [50] * len(starts)), range(20)))
        ours = [t for t in threading.enumerate() if t.name == "wholegrain-remote"]
    assert parts == [[content[start : start + 50] for start in starts]] * 20
    assert 1 <= len(ours) <= 64


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout_s": 0}, ValueError),
        ({"deadline_s": "1"}, TypeError),
        ({"deadline_s": float("inf")}, ValueError),
        ({"max_connections": 0}, ValueError),
        ({"cache": "folder"}, TypeError),
        ({"config": 3}, TypeError),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        RemoteOptions(**options)


def test_options_do_not_show_credentials() -> None:
    options = RemoteOptions(
        endpoint="http://me:geheim@host:9", config={"secret_access_key": "geheim"}
    )
    assert "geheim" not in repr(options)
    assert "host:9" in repr(options)
    with pytest.raises(TypeError, match="got a list") as caught:
        RemoteOptions(config=[("secret_access_key", "geheim")])  # type: ignore[arg-type]
    assert "geheim" not in str(caught.value)
    with pytest.raises(TypeError, match="RemoteOptions"):
        set_remote_options({"timeout_s": 3})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="s3://bucket/"):
        set_remote_options(options, under="bucket")


def test_settings_that_the_store_does_not_know_are_named() -> None:
    set_remote_options(RemoteOptions(config={"bogus": "1"}), under="s3://unknown/")
    try:
        with pytest.raises(ValueError, match="bogus"):
            TFRecordDataSource("s3://unknown/x")
    finally:
        set_remote_options(None, under="s3://unknown/")


def test_options_are_for_whole_names_of_buckets_and_folders() -> None:
    bucket, folder = RemoteOptions(timeout_s=1.0), RemoteOptions(timeout_s=2.0)
    set_remote_options(bucket, under="s3://b")
    set_remote_options(folder, under="s3://b/train")
    try:
        found = [
            options_for(f"s3://b{rest}") for rest in ("", "/x", "/train", "/train/x", "/train2")
        ]
        assert found == [bucket, bucket, folder, folder, bucket]
        assert options_for("s3://b2/x") not in (bucket, folder)
    finally:
        set_remote_options(None, under="s3://b")
        set_remote_options(None, under="s3://b/train")


class _Tagged(http.server.BaseHTTPRequestHandler):
    """One object, with any etag or none."""

    protocol_version = "HTTP/1.1"
    etag: str | None = None
    content = b""
    changed = ""

    def _answer(self, status: int, data: bytes, length: int, where: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", f"Wed, 18 Nov 2026 00:00:{self.changed} GMT")
        if self.etag is not None:
            self.send_header("ETag", self.etag)
        if where:
            self.send_header("Content-Range", where)
        self.end_headers()
        self.wfile.write(data)

    def do_HEAD(self) -> None:
        self._answer(200, b"", len(self.content))

    def do_GET(self) -> None:
        wanted = self.headers.get("If-Match")
        if wanted is not None and (wanted != self.etag or wanted.startswith("W/")):
            return self._answer(412, b"", 0)
        start, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        data = self.content[start : last + 1]
        where = f"bytes {start}-{last}/{len(self.content)}"
        return self._answer(206, data, len(data), where)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("old", "new"), [('"a"', '"b"'), ("a", "b"), ('W/"a"', 'W/"b"'), (None, None)]
)
def test_a_replaced_object_is_noticed_with_every_kind_of_etag(
    old: str | None, new: str | None
) -> None:
    class Tagged(_Tagged):
        etag, content, changed = old, b"A" * 100, "01"

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tagged)
    threading.Thread(target=server.serve_forever).start()
    try:
        # Whatever the name of the setting, and its case.
        config = {"region": "r", "AWS_ENDPOINT_URL": f"HTTP://127.0.0.1:{server.server_port}"}
        options = RemoteOptions(anonymous=True, deadline_s=5.0, config=config)
        set_remote_options(options, under="s3://tagged/")
        file = open_file("s3://tagged/x")
        assert file.read(0, 10) == b"A" * 10
        Tagged.etag, Tagged.content, Tagged.changed = new, b"B" * 100, "02"
        with pytest.raises(ValueError, match=r"s3://tagged/x.*replaced or changed"):
            file.read(50, 10)
        assert open_file("s3://tagged/x").read(0, 10) == b"B" * 10
    finally:
        set_remote_options(None, under="s3://tagged/")
        server.shutdown()
        server.server_close()


def test_a_request_that_cannot_be_made_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if the address of the server had a name that only obstore knows.
    monkeypatch.setattr("wholegrain.sources._remote._ENDPOINT", re.compile("unknown"))
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    options = RemoteOptions(endpoint="http://127.0.0.1:9", anonymous=True, deadline_s=30.0)
    set_remote_options(options, under="s3://wrong/")
    try:
        began = time.monotonic()
        with pytest.raises(OSError, match=r"builder error.*s3://wrong/x"):
            read_all("s3://wrong/x")
        assert time.monotonic() - began < 10
    finally:
        set_remote_options(None, under="s3://wrong/")
