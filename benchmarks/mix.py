"""Mixing eight datasets by weights."""

from collections.abc import Iterator
from typing import Any

from harness import Benchmark
from harness.declare import Epoch

SOURCES = [list(range(100_000 * number, 100_000 * number + 20_000)) for number in range(8)]
WEIGHTS = [0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.04]

benchmark = Benchmark("Mixing eight datasets by weights, no threads")
on_map = benchmark.case("MapDataset.mix", digest_items=500)
on_iter = benchmark.case("IterDataset.mix", digest_items=500)


@on_map.competitor("wholegrain", "grain")
def map_dataset(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    parts = [grain.MapDataset.source(source) for source in SOURCES]
    mixed = grain.MapDataset.mix(parts, WEIGHTS)
    return lambda epoch: mixed.to_iter_dataset(synchronous)


@on_iter.competitor("wholegrain", "grain")
def iter_dataset(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    parts = [grain.MapDataset.source(source).to_iter_dataset(synchronous) for source in SOURCES]
    mixed = grain.IterDataset.mix(parts, WEIGHTS)
    return lambda epoch: mixed


@on_map.competitor("wholegrain", name="plain loop", ordered=False)
@on_iter.competitor("wholegrain", name="plain loop", ordered=False)
def plain_loop(_: Any) -> Epoch:
    """Walk a list that says which iterator comes next."""
    picks = [max(range(8), key=lambda part: WEIGHTS[part] * k % 1) for k in range(1000)]

    def epoch(number: int) -> Iterator[int]:
        parts = [iter(source) for source in SOURCES]
        while True:
            for pick in picks:
                try:
                    yield next(parts[pick])
                except StopIteration:
                    return

    return epoch


on_map.target(over="grain", at_least=15)
on_iter.target(over="grain", at_least=15)
