"""What `it.digest()` costs, and how fast it is; and how long `it.provenance` and `ds.find` take.

    python benchmarks/digest.py

Both sides of a ratio run in turn, and the median of several rounds is printed. A run that has no
digest has no such stage, so only the run with one is compared with it.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain._core.digest import element_digest

_ROUNDS = 7


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _cpu_seconds(function: Callable[[], Any]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start


def _consumed(ds: Any, count: int, digested: bool) -> float:
    it = iter(ds)
    if digested:
        it.digest()
    return _cpu_seconds(lambda: [None for _ in itertools.islice(it, count)])


def main() -> None:
    rng = np.random.default_rng(0)
    print("digest of one element")
    for shape in [(64, 2048), (256, 224, 224, 3), (8, 1024, 1024)]:
        element = {"x": rng.integers(0, 255, shape, dtype=np.uint8)}
        times = [_cpu_seconds(lambda one=element: element_digest(one)) for _ in range(_ROUNDS)]
        speed = element["x"].nbytes / statistics.median(times) / 1e9
        print(f"  {element['x'].nbytes / 1e6:8.1f} MB  {speed:5.2f} GB/s")

    print("a run with a digest, and without")
    rows = rng.integers(0, 50_000, (4096, 2048), dtype=np.int32)
    ds = wg.MapDataset.source(rows).shuffle(seed=1).repeat().batch(64).to_iter_dataset()
    pairs = [(_consumed(ds, 200, True), _consumed(ds, 200, False)) for _ in range(_ROUNDS)]
    with_digest, without = (statistics.median(times) for times in zip(*pairs, strict=True))
    nbytes = 200 * 64 * rows[0].nbytes
    print(f"  {nbytes / without / 1e9:.2f} GB/s without, {nbytes / with_digest / 1e9:.2f} with")
    print(f"  the digest alone: {nbytes / (with_digest - without) / 1e9:.2f} GB/s")

    print("asking")
    it = iter(wg.MapDataset.range(10**9).shuffle(seed=1).repeat().batch(256).to_iter_dataset())
    asked = [_seconds(lambda: it.provenance(41_320_000)) for _ in range(_ROUNDS)]
    print(f"  provenance of step 41,320,000: {1e3 * statistics.median(asked):.2f} ms")
    long = wg.MapDataset.range(10**12).shuffle(seed=1)[::8].batch(256)
    found = [_seconds(lambda: long.find(123_456_789)) for _ in range(_ROUNDS)]
    print(f"  find in 10**12 records: {1e3 * statistics.median(found):.2f} ms")
    moved = [_seconds(lambda n=n: it.seek(10**7 + n)) for n in range(_ROUNDS)]
    print(f"  seek to step 10,000,000: {1e3 * statistics.median(moved):.2f} ms")


if __name__ == "__main__":
    main()
