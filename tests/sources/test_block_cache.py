"""The cache of remote objects on local disk."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.s3_server import s3_bucket
from tests.sources.cache_reader import content
from tests.sources.faulty_proxy import FaultyProxy
from tests.sources.files import records, write_tfrecord
from wholegrain._cli import main
from wholegrain.sources import (
    Cache,
    FolderDataSource,
    RemoteOptions,
    TFRecordDataSource,
    set_remote_options,
)
from wholegrain.sources._files import open_file, read_all
from wholegrain.sources._open_blocks import OpenBlocks
from wholegrain.testing import check_source

pytestmark = [pytest.mark.filterwarnings("ignore")]
pytest.importorskip("obstore")

ROUNDS = int(os.environ.get("CACHE_KILLS", "12"))


@pytest.fixture(name="bucket", scope="module")
def _bucket() -> Iterator[Any]:
    with s3_bucket("data") as client:
        yield client


@pytest.fixture(name="proxy")
def _proxy(bucket: Any) -> Iterator[FaultyProxy]:
    with FaultyProxy(bucket.meta.endpoint_url).running() as proxy:
        yield proxy
    set_remote_options(None, under="s3://data/")


def use(proxy: FaultyProxy, cache: Cache) -> None:
    options = RemoteOptions(
        endpoint=proxy.address, timeout_s=0.5, deadline_s=1.0, max_pause_s=0.1, cache=cache
    )
    set_remote_options(options, under="s3://data/")


def upload(bucket: Any, key: str, data: bytes) -> str:
    bucket.put_object(Bucket="data", Key=key, Body=data)
    return f"s3://data/{key}"


def size_of(cache: Cache) -> int:
    return sum(info.st_size for _, info in cache.blocks())


def test_reads_equal_the_object_and_come_from_disk_the_second_time(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    data = np.random.default_rng(1).bytes(300_001)
    url = upload(bucket, "a.bin", data)
    use(proxy, Cache(str(tmp_path / "cache"), block_bytes=4096))
    rng = random.Random(0)
    starts = [0, 4095, 4096, 300_000, 300_001, *(rng.randrange(300_001) for _ in range(50))]
    lengths = [0, 2, 4096, 100, 5, *(rng.randrange(20_000) for _ in range(50))]
    wanted = [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    assert open_file(url).read_ranges(starts, lengths) == wanted
    assert read_all(url) == data
    asked = proxy.counts["passed"]
    assert read_all(url) == data
    assert open_file(url).read_ranges(starts, lengths) == wanted
    assert proxy.counts["passed"] == asked + 2  # only whether the object is still the same


def test_sources_read_through_it_also_in_workers(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    use(proxy, Cache(str(tmp_path / "cache"), block_bytes=4096))
    data = write_tfrecord(tmp_path / "a", records(50)).read_bytes()
    source = TFRecordDataSource(upload(bucket, "a.tfrecord", data))
    check_source(source, max_elements=20)
    ds = wg.MapDataset.source(source).to_iter_dataset()
    assert list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))) == records(50)


def test_a_changed_object_is_read_again(bucket: Any, proxy: FaultyProxy, tmp_path: Path) -> None:
    use(proxy, Cache(str(tmp_path / "cache")))
    url = upload(bucket, "b", b"old content")
    assert read_all(url) == b"old content"
    upload(bucket, "b", b"new content")
    assert read_all(url) == b"new content"


def test_the_next_run_reads_it_while_the_store_is_down(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    for name in ("1", "2"):
        upload(bucket, f"down/{name}.bin", name.encode() * 10_000)
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    use(proxy, cache)
    source = FolderDataSource("s3://data/down", "*.bin")
    assert [source[0], source[1]] == [b"1" * 10_000, b"2" * 10_000]
    proxy.is_down, proxy.hang_s = True, 0.6
    again = FolderDataSource("s3://data/down", "*.bin")
    assert [again[0], again[1]] == [b"1" * 10_000, b"2" * 10_000]
    cache.clear()
    with pytest.raises(OSError, match="s3://data/down"):
        again[0]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "swap"])
def test_damaged_blocks_are_fetched_again(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path, damage: str
) -> None:
    data = np.random.default_rng(2).bytes(20_000)
    url = upload(bucket, "c", data)
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    use(proxy, cache)
    assert read_all(url) == data
    paths = [Path(cache.path_of(name)) for name, _ in cache.blocks()]
    contents = [path.read_bytes() for path in paths]
    for path, block, other in zip(paths, contents, contents[1:] + contents[:1], strict=True):
        path.write_bytes(
            {
                "cut": block[: len(block) // 2],
                "flip": bytes([block[0] ^ 1]) + block[1:],
                "empty": b"",
                "swap": other,
            }[damage]
        )
    assert not any(cache.is_valid(name) for name, _ in cache.blocks())
    assert open_file(url).read_ranges([0, 5000], [20_000, 10]) == [data, data[5000:5010]]
    assert all(cache.is_valid(name) for name, _ in cache.blocks())


def test_the_limit_holds_and_what_was_used_last_stays(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    cache = Cache(str(tmp_path / "cache"), max_bytes=50_000, block_bytes=4096)
    use(proxy, cache)
    url = upload(bucket, "d", bytes(400_000))
    file = open_file(url)
    for start in range(0, 400_000, 4096):
        file.read(start, 10)
        assert size_of(cache) <= 50_000
    assert size_of(cache) > 30_000
    asked = proxy.counts["passed"]
    file.read(399_999 - 4096, 4096)  # what was read last is there
    assert proxy.counts["passed"] == asked


def test_it_never_deletes_what_it_did_not_write(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("important")
    with pytest.raises(ValueError, match=r"thesis\.txt.*empty folder"):
        Cache(str(tmp_path / "notes"))
    cache = Cache(str(tmp_path / "cache"), max_bytes=20_000, block_bytes=4096)
    mine = [tmp_path / "cache" / "mine.txt", tmp_path / "cache" / "blocks" / "ab" / "mine"]
    mine[1].parent.mkdir()
    for path in mine:
        path.write_text("important")
    use(proxy, cache)
    read_all(upload(bucket, "e", bytes(100_000)))
    cache.clear()
    assert [path.read_text() for path in mine] == ["important"] * 2
    assert size_of(cache) == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_bytes": "many"}, ValueError),
        ({"max_bytes": 100}, ValueError),
        ({"max_bytes": 1.5}, ValueError),
        ({"max_bytes": None}, TypeError),
        ({"block_bytes": 10}, ValueError),
        ({"block_bytes": 1e6}, TypeError),
    ],
)
def test_wrong_sizes_are_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="bytes"):
        Cache(str(tmp_path / "cache"), **arguments)


def test_sizes_are_numbers_texts_or_fractions_of_the_disk(tmp_path: Path) -> None:
    assert Cache(str(tmp_path), max_bytes="1.5 GB").limit() == 1_500_000_000
    assert Cache(str(tmp_path), max_bytes="2GiB").limit() == 2 << 30
    disk = os.statvfs(tmp_path)
    assert Cache(str(tmp_path), max_bytes=0.5).limit() == disk.f_blocks * disk.f_frsize // 2


def test_a_folder_that_cannot_be_written_only_costs_the_cache(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(str(tmp_path / "cache"))
    use(proxy, cache)
    url = upload(bucket, "f", b"content")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wholegrain.sources.cache._write_all", full)
    assert read_all(url) == b"content"


def test_killed_processes_leave_nothing_wrong(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path
) -> None:
    for number in range(4):
        upload(bucket, f"kill/{number}", content(number))
    limit = 100_000  # of 256,000
    cache = Cache(str(tmp_path / "cache"), max_bytes=limit, block_bytes=4096)
    rng = random.Random(0)
    readers: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.sources.cache_reader", cache.directory]
        command += [str(limit), bucket.meta.endpoint_url, str(rng.randrange(1 << 30))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    try:
        readers += [start() for _ in range(8 if ROUNDS > 20 else 4)]
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for _ in range(ROUNDS):
            time.sleep(rng.random() * 0.3)
            victim = readers.pop(rng.randrange(len(readers)))
            assert victim.poll() is None, victim.stdout.read() if victim.stdout else ""
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            assert size_of(cache) <= limit
            readers.append(start())
    finally:
        for reader in readers:
            reader.kill()
            output, _ = reader.communicate()
            assert "WRONG" not in output
    assert all(cache.is_valid(name) for name, _ in cache.blocks())
    set_remote_options(
        RemoteOptions(endpoint=proxy.address, cache=cache), under="s3://data/"
    )  # No lock is left: this process reads and writes at once.
    assert [read_all(f"s3://data/kill/{number}") for number in range(4)] == [
        content(number) for number in range(4)
    ]
    assert size_of(cache) <= limit


def test_the_command_lists_verifies_and_clears(
    bucket: Any, proxy: FaultyProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    use(proxy, cache)
    url = upload(bucket, "cli.bin", np.random.default_rng(3).bytes(40_000))
    open_file(url).read(0, 20_000)
    assert main(["cache", "ls", cache.directory]) == 0
    assert f"51% of          40,000 bytes  {url}" in capsys.readouterr().out
    name, _ = next(cache.blocks())
    Path(cache.path_of(name)).write_bytes(b"damaged")
    assert main(["cache", "verify", cache.directory]) == 1
    assert "1 of 5 blocks were damaged" in capsys.readouterr().out
    assert main(["cache", "verify", cache.directory]) == 0
    assert main(["cache", "clear", cache.directory]) == 0
    assert size_of(cache) == 0
    assert main(["cache", "ls", str(tmp_path)]) == 2
    assert "is not a cache" in capsys.readouterr().err


@pytest.fixture(name="local")
def _local(tmp_path: Path) -> Iterator[Path]:
    """A file that is read through fsspec and the cache."""
    pytest.importorskip("fsspec")
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    set_remote_options(RemoteOptions(cache=cache, timeout_s=5.0, deadline_s=5.0), under="local://")
    path = tmp_path / "object"
    path.write_bytes(b"A" * 10_000)
    yield path
    set_remote_options(None, under="local://")


@pytest.fixture(name="local_url")
def _local_url(local: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("wholegrain.sources._open_blocks._CHECK_EVERY_S", 0.0)
    monkeypatch.chdir("/")  # The path in an address has no slash in front.
    return f"local:/{local}"


def test_nothing_of_a_replaced_object_is_kept(local: Path, local_url: str) -> None:
    file, old = open_file(local_url), local.stat()
    assert file.read(0, 10) == b"A" * 10
    local.write_bytes(b"B" * 10_000)
    os.utime(local, (1, 1))
    with pytest.raises(ValueError, match="replaced or changed"):
        file.read(5000, 10)
    local.write_bytes(b"A" * 10_000)
    os.utime(local, ns=(old.st_mtime_ns, old.st_mtime_ns))
    assert read_all(local_url) == b"A" * 10_000


def test_blocks_that_are_truncated_while_they_are_open_are_fetched_again(
    local_url: str, tmp_path: Path
) -> None:
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    read_all(local_url)
    file = open_file(local_url)
    file.read(0, 10_000)
    for length in (200, 5000):
        for name, _ in list(cache.blocks()):
            os.truncate(cache.path_of(name), 100)
        assert file.read(0, length) == b"A" * length
        assert file.read(0, 10_000) == b"A" * 10_000
    assert all(cache.is_valid(name) for name, _ in cache.blocks())


def test_the_use_of_an_open_block_is_noted(
    local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    file = open_file(local_url)
    for _ in range(2):  # from the store, and from a block that is then open
        file.read(0, 10)
    ((name, _),) = cache.blocks()
    os.utime(cache.path_of(name), (1, 1))
    file.read(0, 10)
    assert os.stat(cache.path_of(name)).st_mtime == 1
    monkeypatch.setattr("wholegrain.sources._open_blocks.USE_S", 0.0)
    file.read(0, 10)
    assert os.stat(cache.path_of(name)).st_mtime > 1


@pytest.mark.parametrize("check", [True, False])
def test_records_within_across_and_over_blocks(
    local: Path, local_url: str, tmp_path: Path, check: bool
) -> None:
    rng = np.random.default_rng(2)
    wanted = [rng.bytes(int(size)) for size in (*rng.integers(0, 3000, 90), 4080, 20_000, 0, 8176)]
    write_tfrecord(local, wanted)
    source = TFRecordDataSource(local_url, check_payload=check)
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    for truncated in (False, False, True):  # from the store, from open blocks, from damaged ones
        if truncated:
            for name, _ in list(cache.blocks()):
                os.truncate(cache.path_of(name), 100)
        positions = rng.integers(0, len(wanted), 300).tolist()  # They repeat.
        assert source.__getitems__(positions) == [wanted[position] for position in positions]
        assert [source[position] for position in range(len(wanted))] == wanted


def test_an_interrupted_read_does_not_hold_up_the_next(
    local_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = open_file(local_url)
    claim = OpenBlocks.claim

    def interrupted(*arguments: Any) -> None:
        claim(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OpenBlocks, "claim", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.read(0, 10)
    began = time.monotonic()
    assert file.read(0, 10) == b"A" * 10
    assert time.monotonic() - began < 4


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache"), block_bytes=4096)
    with cache._locked():
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        writer = threading.Thread(target=cache.write_block, args=("a" * 64, b"x"), daemon=True)
        writer.start()
        writer.join(20)
        assert not writer.is_alive()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_processes_may_create_one_cache_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listdir = os.listdir

    def create_first(path: str) -> list[str]:
        monkeypatch.setattr(os, "listdir", listdir)
        Cache(path)  # as another process, at the worst moment
        return listdir(path)

    monkeypatch.setattr(os, "listdir", create_first)
    Cache(str(tmp_path / "cache"))


def test_a_cache_is_cleared_while_others_write(tmp_path: Path) -> None:
    cache, is_over = Cache(str(tmp_path / "cache")), threading.Event()

    def remember() -> None:
        while not is_over.is_set():
            for number in range(20):
                cache.remember(f"s3://b/{number}", {"size": time.monotonic_ns()})

    writer = threading.Thread(target=remember)
    writer.start()
    try:
        for _ in range(2000):
            cache.clear()
    finally:
        is_over.set()
        writer.join()
