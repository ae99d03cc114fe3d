"""Packing token sequences of lognormal length, mean 400, into rows of 2,048."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch

ROW = 2_048
BINS = 64
SIGMA = 0.8
MEAN = 400

benchmark = Benchmark("Packing sequences of lognormal length (mean 400) into rows of 2,048 tokens")
PACKERS = {
    "first-fit": ("FirstFitPackIterDataset", {"num_packing_bins": BINS}, 20.0),
    "best-fit": ("BestFitPackIterDataset", {"num_packing_bins": BINS}, 20.0),
    "concat-then-split": ("ConcatThenSplitIterDataset", {}, 5.0),
}


def sequences(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    lengths = rng.lognormal(math.log(MEAN) - SIGMA**2 / 2, SIGMA, count)
    return [
        {"tokens": rng.integers(1, 50_000, length, dtype=np.int32)}
        for length in np.clip(lengths, 1, ROW).astype(int)
    ]


def add_case(packer: str, class_name: str, options: dict[str, Any], at_least: float) -> None:
    lump = options.get("num_packing_bins", 1)
    case = benchmark.case(packer, unit="token", digest_items=200)

    @case.competitor("wholegrain", "grain", per_item=ROW, lump=lump)
    def packed(grain: Any) -> Epoch:
        synchronous = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        source = grain.MapDataset.source(sequences(20_000))
        pack = getattr(grain.experimental, class_name)

        def epoch(number: int) -> Any:
            parent = source.to_iter_dataset(synchronous)
            return pack(parent, length_struct={"tokens": ROW}, **options)

        return epoch

    case.target(over="grain", at_least=at_least)


for name, (class_name, options, at_least) in PACKERS.items():
    add_case(name, class_name, options, at_least)


@benchmark.cases[2].competitor("wholegrain", name="plain loop", per_item=ROW, ordered=False)
def plain_concatenate(_: Any) -> Epoch:
    """Concatenate and cut with numpy, without segments and positions."""
    source = [element["tokens"] for element in sequences(20_000)]

    def epoch(number: int) -> Iterator[Any]:
        filled, pieces = 0, []
        for piece in source:
            pieces.append(piece)
            filled += len(piece)
            if filled >= ROW:
                whole = np.concatenate(pieces)
                yield whole[:ROW]
                pieces = [whole[ROW:]]
                filled -= ROW

    return epoch
