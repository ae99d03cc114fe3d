"""How long does the first batch take with two worker processes?"""

import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.processes import allow_workers

LENGTH = 10_000
BATCH = 32

benchmark = Benchmark("From `iter` to the first batch, with 2 worker processes")


def features(number: int) -> Any:
    return {"x": np.full(64, number, np.float32), "y": number}


def pipeline(grain: Any) -> Any:
    ds = grain.MapDataset.range(LENGTH).shuffle(seed=1).map(features).batch(BATCH)
    return ds.to_iter_dataset().mp_prefetch(grain.MultiprocessingOptions(num_workers=2))


class Numbers:
    """The same elements for torch."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return features(index)


def loader(torch: Any) -> Any:
    return torch.utils.data.DataLoader(Numbers(), BATCH, shuffle=True, num_workers=2)


def first_batch(iterable: Any) -> float:
    start = time.perf_counter()
    it = iter(iterable)
    next(it)
    seconds = time.perf_counter() - start
    if hasattr(it, "close"):
        it.close()
    return seconds


def opened(library: str) -> Any:
    module = import_module(library)
    allow_workers(module)
    made = loader(module) if library == "torch" else pipeline(module)
    time.sleep(0.2)  # Threads of numpy's spin for a tenth of a second after it was imported.
    return made


cold = benchmark.case(
    "in a program that had no workers yet", unit="start", measures="seconds", digest_items=0
)
with_jax = benchmark.case(
    "the same, where jax and Orbax are installed", unit="start", measures="seconds", digest_items=0
)


@with_jax.competitor("wholegrain", "grain", beside="jax")
@cold.competitor("wholegrain", "grain", "torch")
def in_a_new_program(library: Any) -> Epoch:
    def epoch(number: int) -> Iterator[float]:
        command = [sys.executable, __file__, library.__name__]
        yield float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return epoch


warm = benchmark.case(
    "in a program that had workers before", unit="start", measures="seconds", digest_items=0
)


@warm.competitor("wholegrain", "grain", "torch")
def again(library: Any) -> Epoch:
    iterable = opened(library.__name__)
    first_batch(iterable)

    def epoch(number: int) -> Iterator[float]:
        yield first_batch(iterable)

    return epoch


cold.target(over="grain", at_least=3)
with_jax.target(over="grain", at_least=3)
warm.target(over="grain", at_least=1 / 0.08)

if __name__ == "__main__":
    print(first_batch(opened(sys.argv[1])))
