"""An array of 1 GB in a source: when is the first batch there, and how much memory does it take?"""

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers, shared_out_bytes

ROWS, COLUMNS = 250_000, 1000
BATCH = 64
BATCHES = 400  # Until everything that is read ahead has been.

benchmark = Benchmark("Rows of an array of 1 GB: shuffle -> batch(64), default ReadOptions")


class Rows:
    """A source that is one array."""

    def __init__(self) -> None:
        self.array = np.ones((ROWS, COLUMNS), np.float32)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return self.array[index]


def pipeline(grain: Any, source: Rows, workers: int) -> Any:
    ds = grain.MapDataset.source(source).shuffle(seed=1).batch(BATCH).to_iter_dataset()
    return ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))


def loader(torch: Any, source: Rows, workers: int) -> Any:
    return torch.utils.data.DataLoader(source, BATCH, shuffle=True, num_workers=workers)


first = benchmark.case(
    "first batch, 2 workers", unit="start", measures="seconds", digest_items=0, seconds=0.1
)


def opened(library: Any, workers: int) -> Any:
    allow_workers(library)
    make = loader if library.__name__ == "torch" else pipeline
    return make(library, Rows(), workers)


@first.competitor("wholegrain", "grain", "torch")
def time_to_first_batch(library: Any) -> Epoch:
    iterable = opened(library, 2)

    def epoch(number: int) -> Iterator[float]:
        start = time.perf_counter()
        it = iter(iterable)
        next(it)
        yield time.perf_counter() - start
        if hasattr(it, "close"):
            it.close()

    return epoch


first.target(over="grain", at_least=20)


def memory_of_workers(library: Any, workers: int) -> Epoch:
    iterable = opened(library, workers)

    def epoch(number: int) -> Iterator[float]:
        it = iter(iterable)
        for _ in islice(it, BATCHES):
            pass
        yield shared_out_bytes()
        if hasattr(it, "close"):
            it.close()

    return epoch


for workers in (2, 4):
    memory = benchmark.case(
        f"memory, {workers} workers",
        unit="run",
        measures="bytes",
        digest_items=0,
        seconds=0.1,
        note="proportional memory (PSS) of all processes but the main one, which has the array too",
    )
    # Four of Grain's would take 8 GB.
    libraries = ("wholegrain", "torch") if workers > 2 else ("wholegrain", "grain", "torch")
    memory.competitor(*libraries)(partial(memory_of_workers, workers=workers))
    memory.target(at_most=1.1e9)
