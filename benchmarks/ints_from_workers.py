"""Ints from worker processes: what does an element cost that is next to nothing?"""

from functools import partial
from typing import Any

from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers, endless

benchmark = Benchmark("An IterDataset of ints in worker processes")


def increment(element: int) -> int:
    return element + 1


def dataset(grain: Any, workers: int) -> Epoch:
    allow_workers(grain)
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.range(1 << 30).to_iter_dataset(synchronous).map(increment)
    it = iter(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)))
    return lambda epoch: endless(it)


class Numbers:
    """The same elements for torch."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> int:
        return index + 1


def torch_loader(torch: Any, workers: int) -> Epoch:
    it = iter(torch.utils.data.DataLoader(Numbers(), batch_size=None, num_workers=workers))
    return lambda epoch: endless(it)


for workers in (1, 2):
    case = benchmark.case(f"{workers} worker" + "s" * (workers > 1), lead=3000)
    case.competitor("wholegrain", "grain")(partial(dataset, workers=workers))
    case.competitor("torch")(partial(torch_loader, workers=workers))
    case.target(over="grain", at_least=20)
