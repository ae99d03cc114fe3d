"""A few elements that take long: do the other workers go on meanwhile?"""

import time
from typing import Any

from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers

USUAL = 2e-3
SLOW = 100 * USUAL

benchmark = Benchmark("Elements that wait 2 ms, and 1% of them 200 ms, with 2 worker processes")
case = benchmark.case(
    "in order",
    lead=500,
    seconds=4,
)


class Source:
    """Elements that wait."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> int:
        time.sleep(SLOW if (index * 2654435761 >> 7) % 100 == 3 else USUAL)
        return index


@case.competitor("wholegrain", "grain", lump=200)
def dataset(grain: Any) -> Epoch:
    allow_workers(grain)
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.source(Source()).to_iter_dataset(synchronous)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return lambda epoch: ds


@case.competitor("torch", lump=200)
def torch_loader(torch: Any) -> Epoch:
    loader = torch.utils.data.DataLoader(Source(), batch_size=None, num_workers=2)
    return lambda epoch: loader


case.constant("two workers that never wait for each other", (0.99 * USUAL + 0.01 * SLOW) / 2)
case.target(over="grain", at_least=1.5)
