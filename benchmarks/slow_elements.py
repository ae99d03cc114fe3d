"""A few elements that take long: do the other workers go on meanwhile?

Where elements wait, overhead is hidden by the waiting, and workers that never wait for each other
are about 1.45 times as fast as workers that always do: no library can be faster.
"""

import time
from functools import partial
from typing import Any

from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers

benchmark = Benchmark(
    "1% of elements take 100 times as long as the others, with 2 worker processes"
)


class Source:
    """Elements that take time: of a processor, or of the clock alone."""

    def __init__(self, usual: float, computes: bool) -> None:
        self.usual = usual
        self.computes = computes

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> int:
        seconds = self.usual * (100 if (index * 2654435761 >> 7) % 100 == 3 else 1)
        if self.computes:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
        else:
            time.sleep(seconds)
        return index


def dataset(grain: Any, source: Source) -> Epoch:
    allow_workers(grain)
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.source(source).to_iter_dataset(synchronous)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return lambda epoch: ds


def torch_loader(torch: Any, source: Source) -> Epoch:
    loader = torch.utils.data.DataLoader(source, batch_size=None, num_workers=2)
    return lambda epoch: loader


for what, usual, computes in (("compute 1 ms", 1e-3, True), ("wait 2 ms", 2e-3, False)):
    case = benchmark.case(f"elements that {what}", lead=500, seconds=4)
    source = Source(usual, computes)
    case.competitor("wholegrain", "grain", lump=200)(partial(dataset, source=source))
    case.competitor("torch", lump=200)(partial(torch_loader, source=source))
    case.constant("two workers that never wait for each other", (0.99 + 0.01 * 100) * usual / 2)
    if computes:
        case.target(over="grain", at_least=1.5)
    case.target(over="two workers that never wait for each other", at_least=0.95)
