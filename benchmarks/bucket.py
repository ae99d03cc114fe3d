"""Batches of token sequences of lognormal length: buckets beside padding to the longest row.

Counted are tokens, without padding. The share of padding: 76 % if all rows have 2,048 cells, 17 %
with these buckets (`it.report()` tells it).
"""

import math
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch

ROW = 2_048
BUDGET = 16 * ROW
BOUNDARIES = [128, 256, 384, 512, 768, 1024, 1536, ROW]
SIGMA, MEAN = 0.8, 500
COUNT = 20_000

benchmark = Benchmark(
    "Batches of 32,768 cells from sequences of lognormal length (mean 500): buckets and padding"
)
case = benchmark.case("lognormal lengths", unit="token")


def sequences() -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    lengths = rng.lognormal(math.log(MEAN) - SIGMA**2 / 2, SIGMA, COUNT)
    return [
        {"tokens": np.full(length, 7, np.int32)} for length in np.clip(lengths, 1, ROW).astype(int)
    ]


TOKENS = sum(len(element["tokens"]) for element in sequences())


def bucketed(wg: Any) -> Any:
    ds = wg.MapDataset.source(sequences()).seed(1).shuffle().to_iter_dataset()
    return ds.bucket("tokens", BOUNDARIES, budget=BUDGET, remainder="keep")


def _pad(element: dict[str, Any]) -> dict[str, Any]:
    row = np.zeros(ROW, np.int32)
    row[: len(element["tokens"])] = element["tokens"]
    return {"tokens": row}


def padded(wg: Any) -> Any:
    ds = wg.MapDataset.source(sequences()).seed(1).shuffle()
    return ds.map(_pad).to_iter_dataset().batch(BUDGET // ROW)


def add(name: str, make: Any, batches: int) -> None:
    @case.competitor("wholegrain", name=name, per_item=TOKENS / batches, ordered=False)
    def competitor(wg: Any) -> Epoch:
        ds = make(wg)
        return lambda number: ds


add("buckets", bucketed, 367)
add("padded to 2,048", padded, COUNT // 16)
case.target("buckets", over="padded to 2,048", at_least=1.0)
