"""Shuffling within windows."""

import random
from collections.abc import Iterator
from typing import Any

from harness import Benchmark
from harness.declare import Epoch

LENGTH = 60_000
WINDOW = 1_000
SOURCE = list(range(LENGTH))

benchmark = Benchmark("Shuffling within windows of 1,000, no threads")
on_map = benchmark.case("WindowShuffleMapDataset", digest_items=1500)
on_iter = benchmark.case("WindowShuffleIterDataset", digest_items=1500)


@on_map.competitor("wholegrain", "grain", lump=WINDOW)
def map_dataset(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    shuffle = grain.experimental.WindowShuffleMapDataset

    def epoch(number: int) -> Any:
        ds = grain.MapDataset.source(SOURCE)
        return shuffle(ds, window_size=WINDOW, seed=1000 * number).to_iter_dataset(synchronous)

    return epoch


@on_iter.competitor("wholegrain", "grain", lump=WINDOW)
def iter_dataset(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    shuffle = grain.experimental.WindowShuffleIterDataset

    def epoch(number: int) -> Any:
        ds = grain.MapDataset.source(SOURCE).to_iter_dataset(synchronous)
        return shuffle(ds, window_size=WINDOW, seed=1000 * number)

    return epoch


@on_map.competitor("wholegrain", name="plain loop", lump=WINDOW, ordered=False)
@on_iter.competitor("wholegrain", name="plain loop", lump=WINDOW, ordered=False)
def plain_loop(_: Any) -> Epoch:
    def epoch(number: int) -> Iterator[int]:
        rng = random.Random(number)
        for start in range(0, LENGTH, WINDOW):
            window = SOURCE[start : start + WINDOW]
            rng.shuffle(window)
            yield from window

    return epoch


on_map.target(over="grain", at_least=20)
on_iter.target(over="grain", at_least=20)
