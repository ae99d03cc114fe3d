"""Reading single elements, `ds[i]`, through shuffle, map, map."""

from itertools import repeat
from operator import getitem
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.order import read_order, write_order

LENGTH = 60_000
SOURCE = list(range(LENGTH))
# Scattered, so that remembering a neighbourhood does not help.
ASKED: list[int] = np.random.default_rng(7).permutation(LENGTH).tolist()

benchmark = Benchmark("ds[i] through shuffle, map, map, i scattered over 60,000 ints in memory")
case = benchmark.case("ds[i]", digest_items=500)


def add_one(element: int) -> int:
    return element + 1


def triple(element: int) -> int:
    return element * 3


@benchmark.prepares
def prepare() -> None:
    write_order(LENGTH)


@case.competitor("wholegrain", "grain")
def dataset(grain: Any) -> Epoch:
    ds = grain.MapDataset.source(SOURCE).shuffle(seed=1).map(add_one).map(triple)
    return lambda epoch: map(getitem, repeat(ds), ASKED)


@case.competitor("wholegrain", name="plain Python")
def plain_python(_: Any) -> Epoch:
    order = read_order(LENGTH)

    def read(index: int) -> int:
        return triple(add_one(SOURCE[order[index]]))

    return lambda epoch: map(read, ASKED)


case.target(over="grain", at_least=8)
