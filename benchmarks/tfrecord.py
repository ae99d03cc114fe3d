"""Records of a TFRecord file, in order."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA

RECORDS = 100_000
NBYTES = 1_000
PATH = DATA / f"{RECORDS}x{NBYTES}.tfrecord"

benchmark = Benchmark("100,000 TFRecord records of 1 kB, in order")
case = benchmark.case("TFRecordIterDataset", unit="record", digest_items=500)


def masked_crc(data: bytes) -> int:
    """Return the checksum TFRecord asks for."""
    import google_crc32c

    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@benchmark.prepares
def prepare() -> None:
    if PATH.exists():
        return
    DATA.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    partial = PATH.with_suffix(".partial")
    with partial.open("wb") as file:
        for _ in range(RECORDS):
            length, payload = struct.pack("<Q", NBYTES), rng.bytes(NBYTES)
            file.write(length + struct.pack("<I", masked_crc(length)))
            file.write(payload + struct.pack("<I", masked_crc(payload)))
    partial.rename(PATH)


@case.competitor("wholegrain", "grain")
def tfrecord_iter_dataset(grain: Any) -> Epoch:
    return lambda epoch: grain.experimental.TFRecordIterDataset(str(PATH))


@case.competitor("wholegrain", name="plain loop")
def plain_loop(_: Any) -> Epoch:
    """Read header and payload, checking nothing."""

    def epoch(number: int) -> Iterator[bytes]:
        with PATH.open("rb") as file:
            while header := file.read(12):
                (length,) = struct.unpack_from("<Q", header)
                yield file.read(length + 4)[:-4]

    return epoch


case.target(over="grain", at_least=1)
