"""Is the cost of an element the same, however large the pipeline is?

    python benchmarks/flat.py

Prints the processor time of an element (of a stage, of a key) in microseconds, for mixtures of 2 to
1,000 datasets, 1 to 20 stages, dicts of 1 to 200 keys and datasets of 10^3 to 10^12 elements.
Along a line the figures should be about the same; each is the least of several samples.
"""

import itertools
import time
from collections import deque
from typing import Any

import wholegrain as wg

_HERE = wg.ReadOptions(num_threads=0, prefetch_buffer_size=0)
_SECONDS, _SAMPLES = 0.15, 5


def same(element: Any) -> Any:
    return element


def cost(ds: Any, units: float) -> float:
    """Return the microseconds of processor time for one of so many units of an element."""
    it = iter(ds)
    deque(itertools.islice(it, 100), maxlen=0)
    samples, count = [], 100
    while len(samples) < _SAMPLES:
        began = time.process_time()
        deque(itertools.islice(it, count), maxlen=0)
        spent = time.process_time() - began
        if spent < _SECONDS:
            count *= 2
        else:
            samples.append(spent / count)
    it.close()
    return 1e6 * min(samples) / units


def shuffled(count: int) -> list[Any]:
    return [wg.MapDataset.range(10**6).shuffle(seed=seed) for seed in range(count)]


def mixed(count: int) -> float:
    return cost(wg.MapDataset.mix(shuffled(count)).repeat().to_iter_dataset(_HERE), 1)


def mixed_batches(count: int) -> float:
    parts = [part.repeat() for part in shuffled(count)]
    weights = [1 + number % 7 for number in range(count)]
    return cost(wg.MapDataset.mix(parts, weights).batch(32).to_iter_dataset(_HERE), 32)


def mixed_in_order(count: int) -> float:
    parts = [part.repeat().to_iter_dataset(_HERE) for part in shuffled(count)]
    return cost(wg.IterDataset.mix(parts), 1)


def stages(count: int) -> float:
    ds = wg.MapDataset.range(10**12)
    for _ in range(count):
        ds = ds.map(same)
    return cost(ds.to_iter_dataset(_HERE), count)


def stages_in_order(count: int) -> float:
    ds = wg.MapDataset.range(10**12).to_iter_dataset(_HERE)
    for _ in range(count):
        ds = ds.map(same)
    return cost(ds, count)


def keys(count: int) -> float:
    elements = [{f"k{key}": number for key in range(count)} for number in range(500)]
    ds = wg.MapDataset.source(elements).repeat().batch(32)
    return cost(ds.to_iter_dataset(_HERE), 32 * count)


def length(count: int) -> float:
    return cost(wg.MapDataset.range(count).shuffle(seed=1).repeat().to_iter_dataset(_HERE), 1)


def main() -> None:
    components, numbers = (2, 10, 100, 1000), (1, 5, 10, 20)
    for name, measure, sizes in (
        ("components of a mixture", mixed, components),
        ("the same, weighted, in batches", mixed_batches, components),
        ("components in order", mixed_in_order, components),
        ("stages, per stage", stages, numbers),
        ("stages in order, per stage", stages_in_order, numbers),
        ("keys of dicts in batches, per key", keys, (1, 10, 50, 200)),
        ("length of a shuffled dataset", length, (10**3, 10**5, 10**7, 10**9, 10**12)),
    ):
        figures = "  ".join(f"{size:g}: {measure(size):.3f}" for size in sizes)
        print(f"{name:34} {figures}", flush=True)


if __name__ == "__main__":
    main()
