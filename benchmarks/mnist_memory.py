"""Small images in memory, as in MNIST, shuffled and batched."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.order import read_order, write_order

LENGTH = 60_000
BATCH = 32

benchmark = Benchmark("60,000 images of 28x28 bytes in memory: shuffle -> batch(32)")
no_threads = benchmark.case("no threads", unit="image", digest_items=50)
default = benchmark.case("default ReadOptions", unit="image", digest_items=20, lead=500 // BATCH)


def images() -> Any:
    return np.random.default_rng(5).integers(0, 256, (LENGTH, 28, 28), dtype=np.uint8)


def pipeline(grain: Any, source: Any, seed: int, read_options: Any) -> Any:
    ds = grain.MapDataset.source(source).shuffle(seed=seed)
    return ds.to_iter_dataset(read_options).batch(BATCH)


@benchmark.prepares
def prepare() -> None:
    write_order(LENGTH)


@no_threads.competitor("wholegrain", "grain", per_item=BATCH)
def without_threads(grain: Any) -> Epoch:
    source = images()
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return lambda epoch: pipeline(grain, source, epoch + 1, synchronous)


@default.competitor("wholegrain", "grain", per_item=BATCH)
def with_default_options(grain: Any) -> Epoch:
    source = images()
    return lambda epoch: pipeline(grain, source, epoch + 1, None)


@no_threads.competitor("torch", per_item=BATCH)
def torch_loader(torch: Any) -> Epoch:
    dataset = torch.from_numpy(images())
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=read_order(LENGTH))
    return lambda epoch: loader


@no_threads.competitor("wholegrain", name="numpy indexing", per_item=BATCH)
def numpy_indexing(_: Any) -> Epoch:
    source = images()
    order = np.array(read_order(LENGTH))

    def epoch(number: int) -> Iterator[Any]:
        for start in range(0, LENGTH, BATCH):
            yield source[order[start : start + BATCH]]

    return epoch


no_threads.target(over="grain", at_least=10)
no_threads.target(over="torch", at_least=1)
default.target(over="grain", at_least=50)
