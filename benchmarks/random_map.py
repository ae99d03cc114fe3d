"""A random map that draws one number per element."""

from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch

LENGTH = 60_000
SOURCE = list(range(LENGTH))

benchmark = Benchmark("random_map drawing one number per element, no threads")
on_map = benchmark.case("MapDataset.random_map", digest_items=500)
on_iter = benchmark.case("IterDataset.random_map", digest_items=500)


def jitter(element: int, rng: np.random.Generator) -> float:
    return element + rng.random()


@on_map.competitor("wholegrain", "grain")
def map_dataset(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)

    def epoch(number: int) -> Any:
        ds = grain.MapDataset.source(SOURCE).seed(number).random_map(jitter)
        return ds.to_iter_dataset(synchronous)

    return epoch


@on_iter.competitor("wholegrain", "grain")
def iter_dataset(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)

    def epoch(number: int) -> Any:
        ds = grain.MapDataset.source(SOURCE).seed(number).to_iter_dataset(synchronous)
        return ds.random_map(jitter)

    return epoch


@on_map.competitor("wholegrain", name="loop, one generator", ordered=False)
@on_iter.competitor("wholegrain", name="loop, one generator", ordered=False)
def plain_loop(_: Any) -> Epoch:
    """One generator for all elements, never reset: quicker, and not reproducible by index."""

    def epoch(number: int) -> Any:
        rng = np.random.default_rng(number)
        return (jitter(element, rng) for element in SOURCE)

    return epoch


on_map.target(over="grain", at_least=10)
on_iter.target(over="grain", at_least=10)
