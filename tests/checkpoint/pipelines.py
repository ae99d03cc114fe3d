"""A pipeline of every kind, and its iterator after some steps."""

from collections.abc import Callable
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain import experimental as X

R = wg.MapDataset.range


class Parts(wg.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element] * (element % 3)


def tokens(x: int) -> dict[str, Any]:
    return {"x": np.full(1 + x % 3, x)}


def read(ds: Any = None) -> Any:
    return (R(40) if ds is None else ds).to_iter_dataset(wg.ReadOptions(2, 4))


def options(workers: int = 2) -> wg.MultiprocessingOptions:
    return wg.MultiprocessingOptions(num_workers=workers)


def loader(workers: Any = 0, *operations: Any) -> wg.DataLoader:
    return wg.DataLoader(
        data_source=range(40),
        sampler=wg.samplers.IndexSampler(40, shuffle=True, num_epochs=1, seed=1),
        operations=operations,
        worker_count=workers,
    )


PIPELINES: dict[str, Callable[[], Any]] = {
    "read": lambda: read(),
    "filtered": lambda: read(R(40).filter(lambda x: x % 3 > 0)).filter(lambda x: x % 2 > 0),
    "batch": lambda: read().batch(3),
    "random map": lambda: read().random_map(lambda x, rng: x + rng.random(), seed=1),
    "map with index": lambda: read().map_with_index(lambda i, x: (i, x)),
    "limit": lambda: X.LimitIterDataset(read(), 20),
    "repeat": lambda: X.RepeatIterDataset(read(R(7)), 5),
    "cache": lambda: X.RepeatIterDataset(X.CacheIterDataset(read(R(7))), 5),
    "zip": lambda: X.ZipIterDataset([read(), read().batch(1)]),
    "mix": lambda: wg.IterDataset.mix([read(), read(R(9))], [1, 2]),
    "mix by name": lambda: wg.IterDataset.mix({"a": read(), "b": read(R(9))}, {"a": 1, "b": 2}),
    "window": lambda: X.WindowShuffleIterDataset(read(), window_size=6, seed=1),
    "rebatch": lambda: X.RebatchIterDataset(read().batch(3), 4),
    "flat map": lambda: X.FlatMapIterDataset(read(), Parts()),
    "pack": lambda: X.FirstFitPackIterDataset(
        read(R(40).map(tokens)), length_struct={"x": 4}, num_packing_bins=3
    ),
    "concatenate and split": lambda: X.ConcatThenSplitIterDataset(
        read(R(40).map(tokens)), length_struct={"x": 4}
    ),
    "interleave": lambda: X.InterleaveIterDataset([read(R(n)) for n in (5, 7, 9)], cycle_length=2),
    "elastic": lambda: X.ElasticIterator(R(40), 4, wg.sharding.ShardOptions(0, 2)),
    "thread": lambda: X.ThreadPrefetchIterDataset(read(), prefetch_buffer_size=3),
    "threads": lambda: X.multithread_prefetch(read(), 2, 3),
    "loader": loader,
    "loader with a flat map": lambda: loader(0, Parts()),
}

WORKERS: dict[str, Callable[[], Any]] = {
    "workers": lambda: read().mp_prefetch(options()),
    "window in workers": lambda: X.WindowShuffleIterDataset(
        read(), window_size=6, seed=1
    ).mp_prefetch(options()),
    "loader with workers": lambda: loader(2),
}


def opened(pipeline: Any, steps: int) -> Any:
    it = iter(pipeline)
    for _ in range(steps):
        next(it)
    return it
