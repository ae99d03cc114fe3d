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


@no_threads.competitor("torch", name="torch", per_item=BATCH, ordered=False)
def torch_map_style(torch: Any) -> Epoch:
    """A map-style Dataset as the tutorials write it; what is filtered is dropped from batches."""
    order = read_order(LENGTH)

    class Mapped(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return LENGTH

        def __getitem__(self, index: int) -> int:
            return triple(add_one(SOURCE[index]))

    def collate(elements: list[int]) -> Any:
        return np.array([element for element in elements if is_even(element)])

    loader = torch.utils.data.DataLoader(
        Mapped(), batch_size=2 * BATCH, sampler=order, collate_fn=collate
    )
    return lambda epoch: loader


@no_threads.competitor("torch", name="torch, by hand", per_item=BATCH, ordered=False)
def torch_by_hand(torch: Any) -> Epoch:
    """All stages written into one loop over a batch, in `__getitems__`: for comparison."""
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
no_threads.target(over="torch", at_least=1)
no_threads.target(over="plain loop", at_least=0.35)
default.target(over="grain", at_least=250)
default.target(over="wholegrain", in_case="no threads", at_least=1 / 1.15)
