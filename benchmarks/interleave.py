"""Interleaving sixteen iterators."""

from collections.abc import Iterator
from typing import Any

from harness import Benchmark
from harness.declare import Epoch

COUNT = 16
SOURCES = [list(range(100_000 * number, 100_000 * number + 5_000)) for number in range(COUNT)]

benchmark = Benchmark("Interleaving 16 iterators over ints in memory")
case = benchmark.case("InterleaveIterDataset", digest_items=500)


@case.competitor("wholegrain", "grain")
def interleaved(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    parts = [grain.MapDataset.source(source).to_iter_dataset(synchronous) for source in SOURCES]
    ds = grain.experimental.InterleaveIterDataset(parts, cycle_length=COUNT)
    return lambda epoch: ds


@case.competitor("wholegrain", name="plain loop")
def plain_loop(_: Any) -> Epoch:
    def epoch(number: int) -> Iterator[int]:
        iterators = [iter(source) for source in SOURCES]
        while True:
            for iterator in iterators:
                try:
                    yield next(iterator)
                except StopIteration:
                    return

    return epoch


case.target(over="grain", at_least=15)
