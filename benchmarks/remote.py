"""Records of 10 kB in a store with a latency of 30 ms, cold and from the cache on local disk."""

import atexit
import http.client
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA

RECORDS = 4_000
NBYTES = 10_000
BATCH = 20
THREADS = 32
FOLDER = DATA / "remote"
FILES = [FOLDER / f"{RECORDS}x{NBYTES}-{shard}.tfrecord" for shard in range(4)]

benchmark = Benchmark("4,000 TFRecord records of 10 kB in a store with 30 ms latency, shuffled")
# Threads finish about at the same time, so batches arrive many at a time: only the time of a whole
# epoch means something.
EPOCH = RECORDS // BATCH
cold = benchmark.case("without a cache", unit="batch", digest_items=0, lead=64, seconds=2)
warm = benchmark.case("from the cache", unit="batch", digest_items=20, lead=8)


def masked_crc(data: bytes) -> int:
    """Return the checksum TFRecord asks for."""
    import google_crc32c

    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@benchmark.prepares
def prepare() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(6)
    for path in FILES:
        if path.exists():
            continue
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            for _ in range(RECORDS // len(FILES)):
                length, payload = struct.pack("<Q", NBYTES), rng.bytes(NBYTES)
                file.write(length + struct.pack("<I", masked_crc(length)))
                file.write(payload + struct.pack("<I", masked_crc(payload)))
        partial.rename(path)


def serve() -> int:
    """Start the store, and return its port. It ends with this process."""
    script = Path(__file__).parent / "harness" / "latency_server.py"
    server = subprocess.Popen(
        [sys.executable, str(script), str(FOLDER)], stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.kill)
    assert server.stdout is not None
    return int(server.stdout.readline())


def remote(grain: Any, **options: Any) -> list[str]:
    config = {"skip_signature": True, "region": "us-east-1"}
    options = {"endpoint": f"http://127.0.0.1:{serve()}", "config": config, **options}
    grain.sources.set_remote_options(grain.sources.RemoteOptions(**options))
    return [f"s3://bucket/{path.name}" for path in FILES]


def batches(grain: Any, source: Any) -> Epoch:
    ds = grain.MapDataset.source(source).seed(1).shuffle().batch(BATCH, batch_fn=list).repeat()
    read = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=THREADS * 2)
    return lambda epoch: ds.to_iter_dataset(read)


@cold.competitor("wholegrain", lump=EPOCH)
def without_a_cache(grain: Any) -> Epoch:
    return batches(grain, grain.sources.TFRecordDataSource(remote(grain)))


@cold.competitor("wholegrain", name="bare range requests", lump=EPOCH, ordered=False)
def bare_requests(grain: Any) -> Epoch:
    """As many requests at the same time, on connections that stay open."""
    port = serve()
    local = threading.local()

    def fetch(number: int) -> bytes:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", port)
        file, record = divmod(number % RECORDS, RECORDS // len(FILES))
        start = record * (NBYTES + 16) + 12
        headers = {"Range": f"bytes={start}-{start + NBYTES + 3}"}
        local.connection.request("GET", f"/bucket/{FILES[file].name}", headers=headers)
        return bytes(local.connection.getresponse().read()[:-4])

    def epoch(number: int) -> Iterator[list[bytes]]:
        order = np.random.default_rng(number).permutation(RECORDS).tolist() * 10_000
        # 64 requests at once, as wholegrain makes by default.
        with ThreadPoolExecutor(64) as pool:
            ahead = [pool.submit(fetch, number) for number in order[:640]]
            for at in range(0, len(order), BATCH):
                yield [future.result() for future in ahead[:BATCH]]
                del ahead[:BATCH]
                ahead += [pool.submit(fetch, n) for n in order[at + 640 : at + 640 + BATCH]]

    return epoch


@warm.competitor("wholegrain")
def from_the_cache(grain: Any) -> Epoch:
    folder = tempfile.mkdtemp(prefix="cache-", dir=FOLDER)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = grain.sources.TFRecordDataSource(remote(grain, cache=grain.sources.Cache(folder)))
    for record in range(0, len(source), 10):
        source[record]  # Fills the cache.
    return batches(grain, source)


@warm.competitor("wholegrain", name="local files")
def local_files(grain: Any) -> Epoch:
    return batches(grain, grain.sources.TFRecordDataSource([str(path) for path in FILES]))


@warm.competitor("wholegrain", name="local files, pread", ordered=False)
def local_reads(grain: Any) -> Epoch:
    """Local files read by a system call for each record, as the cache reads its blocks."""
    import os

    files = [os.open(path, os.O_RDONLY) for path in FILES]

    def epoch(number: int) -> Iterator[list[bytes]]:
        order = np.random.default_rng(number).permutation(RECORDS).tolist() * 10_000
        for at in range(0, len(order), BATCH):
            yield [
                os.pread(files[n % 4], NBYTES + 4, n // 4 * (NBYTES + 16) + 12)[:-4]
                for n in order[at : at + BATCH]
            ]

    return epoch


cold.target(over="bare range requests", at_least=0.8)
warm.target(over="local files", at_least=0.8)
