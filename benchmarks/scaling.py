"""Whether an element costs the same in a small and in a huge dataset, and memory stays flat."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from harness import Benchmark
from harness.declare import Epoch
from harness.memory import resident_bytes

SMALL, *_, LARGE = SIZES = (10_000, 1_000_000, 100_000_000)
MEMORY_LENGTH = 5_000_000
BATCH = 100

benchmark = Benchmark("range(n).shuffle().map().batch(100): cost per element as n grows")


def double(element: int) -> int:
    return element * 2


def pipeline(grain: Any, length: int, seed: int) -> Any:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    ds = grain.MapDataset.range(length).shuffle(seed=seed).map(double).batch(BATCH)
    return ds.to_iter_dataset(synchronous)


def add_case(length: int) -> None:
    case = benchmark.case(f"{length:,} elements")

    @case.competitor("wholegrain", "grain", per_item=BATCH)
    def dataset(grain: Any) -> Epoch:
        return lambda epoch: pipeline(grain, length, epoch + 1)

    if length != SMALL:
        case.target(over="wholegrain", in_case=f"{SMALL:,} elements", at_least=0.8)


for length in SIZES:
    add_case(length)

memory = benchmark.case(
    "memory over an epoch",
    unit="epoch",
    measures="bytes",
    digest_items=0,
    note="growth of resident memory from a tenth of 5,000,000 elements to their end",
)


@memory.competitor("wholegrain")
def growth(grain: Any) -> Epoch:
    def epoch(number: int) -> Iterator[float]:
        iterator = iter(pipeline(grain, MEMORY_LENGTH, number + 1))
        for _ in islice(iterator, MEMORY_LENGTH // BATCH // 10):
            pass
        before = resident_bytes()
        for _ in iterator:
            pass
        yield max(0, resident_bytes() - before)

    return epoch


memory.target(at_most=1e6)
