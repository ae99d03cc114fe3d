"""The arithmetic behind a global shuffle, over ten million elements."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.memory import resident_bytes

LENGTH = 10_000_000
CHUNK = 1_024

benchmark = Benchmark("Global shuffle of 10 million elements: time per index")
chunks = benchmark.case("in chunks", unit="index", digest_items=0)
single = benchmark.case("one by one, index_shuffle()", unit="index", digest_items=1000)
memory = benchmark.case(
    "memory",
    unit="epoch",
    measures="bytes",
    digest_items=0,
    note="growth of resident memory from the first index to the last",
)


def indices_in_chunks(wholegrain: Any, seed: int) -> Iterator[Any]:
    shuffled = wholegrain.MapDataset.range(LENGTH).shuffle(seed=seed)
    for start in range(0, LENGTH - CHUNK, CHUNK):
        yield shuffled.parent_index(np.arange(start, start + CHUNK))


@chunks.competitor("wholegrain", per_item=CHUNK)
def in_chunks(wholegrain: Any) -> Epoch:
    return lambda epoch: indices_in_chunks(wholegrain, epoch)


@chunks.competitor("grain", ordered=False)
@single.competitor("wholegrain", "grain")
def one_by_one(grain: Any) -> Epoch:
    shuffle = grain.experimental.index_shuffle
    return lambda epoch: (
        shuffle(index, max_index=LENGTH - 1, seed=epoch, rounds=4) for index in range(LENGTH)
    )


@memory.competitor("wholegrain")
def memory_of_an_epoch(wholegrain: Any) -> Epoch:
    def epoch(number: int) -> Iterator[float]:
        before = resident_bytes()
        for _ in indices_in_chunks(wholegrain, number):
            pass
        yield max(0, resident_bytes() - before)

    return epoch


chunks.target(at_most=0.1e-6)
memory.target(at_most=2e6)
