"""Elements per second through shuffle, map, map, filter, batch, over ints in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.order import read_order, write_order

LENGTH = 60_000
BATCH = 32
SOURCE = list(range(LENGTH))

benchmark = Benchmark("shuffle -> map -> map -> filter -> batch(32) over 60,000 ints in memory")
no_threads = benchmark.case("no threads")
default = benchmark.case("default ReadOptions", lead=500 // BATCH, digest_items=20)


def add_one(element: int) -> int:
    return element + 1


def triple(element: int) -> int:
    return element * 3


def is_even(element: int) -> bool:
    return element % 2 == 0


def pipeline(grain: Any, seed: int, read_options: Any) -> Any:
    return (
        grain.MapDataset.source(SOURCE)
        .shuffle(seed=seed)
        .map(add_one)
        .map(triple)
        .filter(is_even)
        .to_iter_dataset(read_options)
        .batch(BATCH)
    )


@benchmark.prepares
def prepare() -> None:
    write_order(LENGTH)


@no_threads.competitor("wholegrain", "grain", per_item=BATCH)
def without_threads(grain: Any) -> Epoch:
    synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return lambda epoch: pipeline(grain, epoch + 1, synchronous)


@default.competitor("wholegrain", "grain", per_item=BATCH)
def with_default_options(grain: Any) -> Epoch:
    return lambda epoch: pipeline(grain, epoch + 1, None)


@no_threads.competitor("torch", name="torch, map style", per_item=BATCH, ordered=False)
def torch_map_style(torch: Any) -> Epoch:
    """A Dataset reads a batch of 32 at once and drops from it: quicker, but batches vary."""
    order = read_order(LENGTH)

    class Mapped(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return LENGTH

        def __getitems__(self, indices: list[int]) -> list[int]:
            mapped = [triple(add_one(SOURCE[index])) for index in indices]
            return [element for element in mapped if is_even(element)]

    loader = torch.utils.data.DataLoader(
        Mapped(), batch_size=2 * BATCH, sampler=order, collate_fn=np.array
    )
    return lambda epoch: loader


@no_threads.competitor("torch", name="torch, iterable", per_item=BATCH)
def torch_iterable(torch: Any) -> Epoch:
    """An IterableDataset filters before it is batched: the same batches as everyone's."""
    order = read_order(LENGTH)

    class Filtered(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            for index in order:
                element = triple(add_one(SOURCE[index]))
                if is_even(element):
                    yield element

    loader = torch.utils.data.DataLoader(Filtered(), batch_size=BATCH, collate_fn=np.array)
    return lambda epoch: loader


@no_threads.competitor("wholegrain", name="plain loop", per_item=BATCH)
def plain_loop(_: Any) -> Epoch:
    order = read_order(LENGTH)

    def batches(epoch: int) -> Iterator[Any]:
        batch = []
        for index in order:
            element = triple(add_one(SOURCE[index]))
            if is_even(element):
                batch.append(element)
                if len(batch) == BATCH:
                    yield np.array(batch)
                    batch = []
        if batch:
            yield np.array(batch)

    return batches


no_threads.target(over="grain", at_least=30)
no_threads.target(over="torch, map style", at_least=1)
no_threads.target(over="torch, iterable", at_least=1)
no_threads.target(over="plain loop", at_least=0.35)
default.target(over="grain", at_least=250)
default.target(over="wholegrain", in_case="no threads", at_least=1 / 1.15)
