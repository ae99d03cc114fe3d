"""Batches of 38 MB from worker processes: how often are their bytes moved, and into what memory?

SPDL is the best of the other libraries here: `SharedMemorySegmentPool` (spdl 0.8.0) keeps its
memory, as wholegrain does. It has no batches of its own, so it takes part where arrays are ready.
"""

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers, endless

BATCH = 64
IMAGE = (224, 224, 3)
LEAD = 12

benchmark = Benchmark("Batches of 64 images of 224x224x3 float32, 38 MB, from worker processes")


class Images:
    """Images that are there: nothing is read or computed, so that moving them is all there is."""

    def __init__(self) -> None:
        self.images = np.random.default_rng(5).random((BATCH, *IMAGE), dtype=np.float32)

    def __len__(self) -> int:
        return BATCH

    def __getitem__(self, index: int) -> Any:
        return self.images[index]


class Batches(Images):
    """The same, as one array."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.images


def ready_arrays(grain: Any, workers: int) -> Epoch:
    allow_workers(grain)
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.source(Batches()).repeat().to_iter_dataset(synchronous)
    it = iter(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)))
    return lambda epoch: endless(it)


def stacked(grain: Any, workers: int) -> Epoch:
    allow_workers(grain)
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.source(Images()).repeat().to_iter_dataset(synchronous).batch(BATCH)
    it = iter(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)))
    return lambda epoch: endless(it)


def torch_ready(torch: Any, workers: int) -> Epoch:
    loader = torch.utils.data.DataLoader(Long(Batches()), batch_size=None, num_workers=workers)
    it = iter(loader)
    return lambda epoch: endless(it)


def torch_stacked(torch: Any, workers: int) -> Epoch:
    loader = torch.utils.data.DataLoader(Long(Images()), batch_size=BATCH, num_workers=workers)
    it = iter(loader)
    return lambda epoch: endless(it)


class Long:
    """A source over and over, as torch's sampler wants it."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self.source[index % len(self.source)]


def all_batches() -> Iterator[Any]:
    source = Batches()
    while True:
        yield source[0]


def segment_pool(_: Any, workers: int) -> Epoch:
    from spdl.pipeline import (  # type: ignore[import-not-found,unused-ignore]
        SharedMemorySegmentPool,
        iterate_in_subprocess,
    )

    nbytes = Batches()[0].nbytes
    iterators = [
        iter(
            iterate_in_subprocess(
                all_batches,
                buffer_size=3,
                arena=SharedMemorySegmentPool(segment_size=nbytes + 4096, count=6),
            )
        )
        for _ in range(workers)
    ]

    def in_turn() -> Iterator[Any]:
        for iterator in cycle(iterators):
            yield next(iterator)

    it = in_turn()
    return lambda epoch: endless(it)


def memcpy(_: Any) -> Epoch:
    source = Batches()[0]
    target = np.ones_like(source)

    def epoch(number: int) -> Iterator[Any]:
        while True:
            np.copyto(target, source)
            yield target

    return epoch


for workers in (1, 2):
    what = f"{workers} worker" + "s" * (workers > 1)
    ready = benchmark.case(f"ready arrays, {what}", unit="batch", digest_items=2, lead=LEAD)
    ready.competitor("wholegrain", "grain")(partial(ready_arrays, workers=workers))
    ready.competitor("torch")(partial(torch_ready, workers=workers))
    ready.competitor("spdl", name="SPDL's segment pool")(partial(segment_pool, workers=workers))
    ready.competitor("wholegrain", name="memcpy, memory used again")(memcpy)
    ready.target(over="grain", at_least=11)
    ready.target(over="SPDL's segment pool", at_least=1)
    ready.target(over="memcpy, memory used again", at_least=0.8)

    stack = benchmark.case(f"batch(64), {what}", unit="batch", digest_items=2, lead=LEAD)
    stack.competitor("wholegrain", "grain")(partial(stacked, workers=workers))
    stack.competitor("torch", ordered=False)(partial(torch_stacked, workers=workers))
    stack.competitor("wholegrain", name="memcpy, memory used again", ordered=False)(memcpy)
    stack.target(over="grain", at_least=11)
    stack.target(over="memcpy, memory used again", at_least=0.8)
