"""A user's program over the less common parts, the DataLoader and checkpoints."""

import asyncio
from collections.abc import Sequence
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import wholegrain as wg
from wholegrain import experimental


class Characters(wg.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: str) -> Sequence[str]:
        return list(element)


class Decode(wg.transforms.Map):
    def map(self, element: bytes) -> int:
        return len(element)


class Own(wg.IterDataset[int]):
    """A dataset of the user's own."""

    def __iter__(self) -> wg.DatasetIterator[int]:
        return OwnIterator()


class OwnIterator(wg.DatasetIterator[int]):
    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    def __next__(self) -> int:
        self._position += 1
        return self._position

    def get_state(self) -> dict[str, Any]:
        return {"position": self._position}

    def set_state(self, state: dict[str, Any]) -> None:
        self._position = state["position"]


def nodes() -> None:
    ds = wg.MapDataset.range(10).to_iter_dataset()
    shuffled = experimental.WindowShuffleIterDataset(ds, window_size=3, seed=1)
    assert_type(next(iter(shuffled)), int)
    by_index = experimental.WindowShuffleMapDataset(wg.MapDataset.range(9), window_size=3, seed=1)
    assert_type(next(iter(by_index)), int)
    assert_type(next(iter(experimental.LimitIterDataset(ds, 3))), int)
    assert_type(next(iter(experimental.RepeatIterDataset(ds, 3))), int)
    assert_type(next(iter(experimental.CacheIterDataset(ds))), int)
    ahead = experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2)
    assert_type(next(iter(ahead)), int)
    options = experimental.DatasetOptions(filter_warn_threshold_ratio=None)
    assert_type(next(iter(experimental.WithOptionsIterDataset(ds, options))), int)
    both = experimental.ZipIterDataset([ds, ds])
    assert_type(next(iter(both)), tuple[int, ...])
    assert_type(next(iter(experimental.ZipMapDataset([wg.MapDataset.range(3)]))), tuple[int, ...])
    texts = wg.MapDataset.source(["abc"])
    assert_type(next(iter(experimental.FlatMapMapDataset(texts, Characters()))), str)
    letters = experimental.FlatMapIterDataset(texts.to_iter_dataset(), Characters())
    assert_type(next(iter(letters)), str)
    files = experimental.InterleaveIterDataset([ds, ds], cycle_length=2)
    assert_type(next(iter(files)), int)
    paths = wg.MapDataset.source(["a.tfrecord"])
    records = experimental.InterleaveIterDataset(
        paths.map(lambda path: experimental.TFRecordIterDataset(path)), cycle_length=2
    )
    assert_type(next(iter(records)), bytes)
    assert_type(next(iter(experimental.RebatchIterDataset(ds.batch(2), 3))), npt.NDArray[Any])
    assert_type(experimental.multithread_prefetch(ds, 2, 4), wg.IterDataset[int])
    assert_type(next(iter(Own().map(str))), str)
    rows = experimental.FirstFitPackIterDataset(
        wg.MapDataset.range(3).map(lambda n: {"x": np.zeros(n)}).to_iter_dataset(),
        length_struct={"x": 8},
        num_packing_bins=2,
    )
    for row in rows:
        row["x_segment_ids"].sum()
    splits = experimental.ConcatThenSplitIterDataset(
        wg.MapDataset.range(3).map(lambda n: {"x": np.zeros(n)}).to_iter_dataset(),
        length_struct={"x": 8},
    )
    for split in splits:
        split["x"].sum()
    print(experimental.get_execution_summary(iter(ds)), experimental.get_element_spec(ds))


def loader() -> None:
    source = wg.sources.RangeDataSource(0, 10, 1)
    sampler = wg.samplers.IndexSampler(
        num_records=len(source),
        shard_options=wg.sharding.ShardOptions(shard_index=0, shard_count=1),
        shuffle=True,
        num_epochs=1,
        seed=1,
    )
    data_loader = wg.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[Decode(), wg.transforms.Batch(batch_size=2, drop_remainder=True)],
        worker_count=0,
        read_options=wg.ReadOptions(num_threads=1, prefetch_buffer_size=2),
    )
    it = iter(data_loader)
    assert_type(it, wg.DataLoaderIterator)
    batch = next(it)
    print(batch.shape)
    assert_type(it.get_state(), bytes)
    it.set_state(it.get_state())
    print(it.report().verdict)
    for _ in wg.load(source, shuffle=True, seed=1, num_epochs=1, batch_size=2):
        pass


async def checkpoint(it: wg.DatasetIterator[int]) -> None:
    write = await it.save("directory")
    await write


def main() -> None:
    asyncio.run(checkpoint(iter(Own())))
    elastic = experimental.ElasticIterator(
        wg.MapDataset.range(10), 4, wg.sharding.ShardOptions(0, 1)
    )
    next(elastic)
