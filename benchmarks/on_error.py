"""What `on_error` costs where nothing fails: pipelines with it and without it, in turn."""

from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch

benchmark = Benchmark("`on_error` where nothing fails, beside the same pipeline without it")


def _plus_one(x: Any) -> Any:
    return x + 1


def _ints(wg: Any, tolerant: bool) -> Any:
    ds = wg.MapDataset.range(2_000_000).seed(1).shuffle().map(_plus_one)
    return (ds.on_error("skip") if tolerant else ds).to_iter_dataset()


def _batches(wg: Any, tolerant: bool) -> Any:
    rows = np.zeros((4096, 1024), np.float32)
    ds = wg.MapDataset.source(list(rows)).seed(1).shuffle().map(_plus_one)
    return (ds.on_error("replace") if tolerant else ds).batch(32).repeat().to_iter_dataset()


def _iter_level(wg: Any, tolerant: bool) -> Any:
    ds = wg.MapDataset.range(2_000_000).to_iter_dataset().map(_plus_one)
    return (ds.on_error("skip") if tolerant else ds).batch(32)


def _workers(wg: Any, tolerant: bool) -> Any:
    ds = _batches(wg, tolerant)
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))


PIPELINES = {
    "shuffled ints": _ints,
    "batches of arrays": _batches,
    "batches of ints, tolerated by the iterator": _iter_level,
    "batches of arrays from 2 workers": _workers,
}


def add_case(name: str, make: Any) -> None:
    case = benchmark.case(name, digest_items=20)

    @case.competitor("wholegrain", name="on_error")
    def with_it(wg: Any) -> Epoch:
        return lambda number: make(wg, True)

    @case.competitor("wholegrain", name="without")
    def without(wg: Any) -> Epoch:
        return lambda number: make(wg, False)

    case.target("on_error", over="without", at_least=0.95)


for name, make in PIPELINES.items():
    add_case(name, make)
