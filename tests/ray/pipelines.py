"""Pipelines that the tests run with local workers and with actors."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain import experimental
from wholegrain.multiprocessing import MultiprocessingOptions


def tokens(number: int) -> Any:
    """Return a document of some length."""
    return {"text": np.arange(1 + number % 5, dtype=np.int32) + 100 * number}


def jitter(number: int, rng: np.random.Generator) -> Any:
    return number, rng.integers(1 << 30)


def _numbers(count: int = 60) -> wg.MapDataset[int]:
    return wg.MapDataset.range(count).shuffle(seed=7)


class _Repeat(experimental.FlatMapTransform):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element] * (element % 3)


def _interleave() -> Any:
    parts = [wg.MapDataset.range(n, n + 9).to_iter_dataset() for n in range(0, 60, 9)]
    return experimental.InterleaveIterDataset(parts, cycle_length=3)


def _packed() -> Any:
    documents = _numbers().map(tokens).to_iter_dataset()
    return experimental.FirstFitPackIterDataset(
        documents, length_struct={"text": 8}, num_packing_bins=3
    )


PIPELINES: dict[str, Callable[[], Any]] = {
    "map": lambda: _numbers().map(tokens).to_iter_dataset().batch(1),
    "random map": lambda: _numbers().seed(3).random_map(jitter).to_iter_dataset(),
    "filter": lambda: _numbers().to_iter_dataset().filter(lambda n: n % 3 != 0),
    "flat map": lambda: experimental.FlatMapIterDataset(_numbers().to_iter_dataset(), _Repeat()),
    "window shuffle": lambda: experimental.WindowShuffleIterDataset(
        _numbers().to_iter_dataset(), window_size=10, seed=5
    ),
    "interleave": _interleave,
    "packing": _packed,
    "large batches": lambda: (
        _numbers(12).map(functools.partial(np.full, 50_000)).batch(3).to_iter_dataset()
    ),
}


def run(name: str, num_workers: Any, backend: Any) -> Any:
    """Return an iterator of a pipeline in workers."""
    options = MultiprocessingOptions(num_workers=num_workers, max_workers=2, backend=backend)
    return iter(PIPELINES[name]().mp_prefetch(options))
