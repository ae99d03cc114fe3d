"""Elements of many small arrays from a worker process: what does an array cost, besides its bytes?

SPDL's segment pool (see `large_batches.py`) takes only large arrays; it pickles these.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers, endless

benchmark = Benchmark("Dicts of small arrays, float32 of 4x4, from one worker process")


class Dicts:
    """Elements that are there."""

    def __init__(self, arrays: int) -> None:
        self.element = {f"feature {n}": np.full((4, 4), n, np.float32) for n in range(arrays)}

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self.element


def dataset(grain: Any, arrays: int) -> Epoch:
    allow_workers(grain)
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.source(Dicts(arrays)).to_iter_dataset(synchronous)
    it = iter(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1)))
    return lambda epoch: endless(it)


def torch_loader(torch: Any, arrays: int) -> Epoch:
    loader = torch.utils.data.DataLoader(
        Dicts(arrays), batch_size=None, num_workers=1, collate_fn=as_it_is
    )
    it = iter(loader)
    return lambda epoch: endless(it)


def as_it_is(element: Any) -> Any:
    return element


def all_dicts(arrays: int) -> Iterator[Any]:
    source = Dicts(arrays)
    while True:
        yield source[0]


def segment_pool(_: Any, arrays: int) -> Epoch:
    from spdl.pipeline import (  # type: ignore[import-not-found,unused-ignore]
        SharedMemorySegmentPool,
        iterate_in_subprocess,
    )

    pool = SharedMemorySegmentPool(segment_size=1 << 20, count=6)
    it = iter(iterate_in_subprocess(partial(all_dicts, arrays), buffer_size=3, arena=pool))
    return lambda epoch: endless(it)


for arrays in (20, 100):
    case = benchmark.case(f"{arrays} arrays", unit="dict", digest_items=10, lead=50)
    case.competitor("wholegrain", "grain")(partial(dataset, arrays=arrays))
    case.competitor("torch", name="torch, arrays pickled")(partial(torch_loader, arrays=arrays))
    case.competitor("spdl", name="SPDL's segment pool")(partial(segment_pool, arrays=arrays))
    case.target(over="grain", at_least=30)
