"""The shapes of real programs, as fixed cases beside the random ones."""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness.environments import DATA

_COUNT = 20_000


class Decoding:
    """A source that decodes each record when it is read, as TFDS and readers of images do."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        images = [rng.integers(0, 4, (16, 16), dtype=np.uint8) for _ in range(256)]
        self._records = [zlib.compress(image.tobytes(), 1) for image in images]

    def __len__(self) -> int:
        return _COUNT

    def __getitem__(self, index: Any) -> Any:
        record = self._records[int(index) % len(self._records)]
        pixels = np.frombuffer(zlib.decompress(record), np.uint8).reshape(16, 16)
        return {"image": pixels, "label": int(index) % 10, "id": int(index)}

    def __repr__(self) -> str:
        return f"Decoding({len(self)})"


class DecodingMany(Decoding):
    """The same for many at once: what `tfds.data_source` returns has `__getitems__`."""

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def _normalise(example: Any) -> Any:
    return {"image": example["image"].astype(np.float32) / 255, "label": example["label"]}


def _lines() -> list[str]:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    return [
        json.dumps({"text": " ".join(words[(i * k) % 9] for k in range(5 + i % 20)), "id": i})
        for i in range(_COUNT)
    ]


_VOCABULARY = {word: number for number, word in enumerate("the quick brown fox jumps over a lazy dog".split())}  # fmt: skip  # noqa: E501, SIM905


def _parse(line: str) -> Any:
    return json.loads(line)


def _tokenise(example: Any) -> Any:
    tokens = [_VOCABULARY[word] for word in example["text"].split()]
    padded = np.zeros(32, np.int32)
    padded[: len(tokens)] = tokens[:32]
    return {"tokens": padded, "length": len(tokens)}


def _long_enough(example: Any) -> bool:
    return example["length"] > 6  # type: ignore[no-any-return]


def _windows(grain: Any) -> Any:
    ds = grain.MapDataset.source(Decoding())
    ds = grain.experimental.WindowShuffleMapDataset(ds, window_size=500, seed=3)
    return ds.repeat().map(_normalise).batch(32).to_iter_dataset()


def _windows_one_by_one(grain: Any) -> Any:
    ds = grain.MapDataset.source(Decoding())
    ds = grain.experimental.WindowShuffleMapDataset(ds, window_size=500, seed=3)
    return ds.repeat().to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def _tfds(grain: Any) -> Any:
    ds = grain.MapDataset.source(DecodingMany()).seed(1).shuffle().repeat()
    return ds.map(_normalise).batch(32).to_iter_dataset()


def _tfds_loader(grain: Any) -> Any:
    return grain.DataLoader(
        data_source=DecodingMany(),
        sampler=grain.samplers.IndexSampler(_COUNT, shuffle=True, seed=1),
        operations=[_normaliser(grain), grain.transforms.Batch(32, drop_remainder=True)],
    )


def _normaliser(grain: Any) -> Any:
    class Normalise(grain.transforms.Map):  # type: ignore[misc, name-defined]
        def map(self, element: Any) -> Any:
            return _normalise(element)

    return Normalise()


def _parquet_file() -> str:
    file = DATA / f"rows-{_COUNT}.parquet"
    if not file.exists():
        import pyarrow as pa
        import pyarrow.parquet as pq

        file.parent.mkdir(parents=True, exist_ok=True)
        columns: dict[str, Any] = {
            "text": [f"sentence number {i}" for i in range(_COUNT)],
            "score": np.arange(_COUNT) / 3,
            "label": np.arange(_COUNT) % 10,
            "tokens": [list(range(i % 12)) for i in range(_COUNT)],
        }
        part = file.with_suffix(".part")
        pq.write_table(pa.table(columns), part, row_group_size=5_000)
        part.rename(file)
    return str(file)


def _row(row: Any) -> Any:
    return {"score": row["score"], "label": row["label"], "length": len(row["tokens"])}


def _parquet(grain: Any) -> Any:
    return grain.experimental.ParquetIterDataset(_parquet_file()).map(_row).batch(32)


def _parquet_windows(grain: Any) -> Any:
    ds = grain.experimental.ParquetIterDataset(_parquet_file())
    return grain.experimental.WindowShuffleIterDataset(ds, window_size=100, seed=1).map(_row)


def _tokens(grain: Any) -> Any:
    ds = grain.MapDataset.source(_lines()).seed(3).shuffle().repeat()
    return ds.map(_parse).map(_tokenise).to_iter_dataset().filter(_long_enough).batch(64)


def _tokens_by_index(grain: Any) -> Any:
    ds = grain.MapDataset.source(_lines()).seed(3).shuffle().repeat()
    return ds.map(_parse).map(_tokenise).batch(64).to_iter_dataset()


def _plain_tokens() -> Iterator[Any]:
    batch = []
    for line in _LINES:
        example = _tokenise(_parse(line))
        if _long_enough(example):
            batch.append(example)
            if len(batch) == 64:
                yield {key: np.array([one[key] for one in batch]) for key in batch[0]}
                batch = []


_LINES = _lines()


@dataclass(frozen=True)
class Program:
    """How a program builds its pipeline, and the loop that it might write instead.

    Attributes:
        lump: How many items are made together: Parquet files are read by row groups.
    """

    build: Callable[[Any], Any]
    plain: Callable[[], Iterator[Any]] | None = None
    lump: int = 1


PROGRAMS = {
    "decoding source, window shuffle, batches": Program(_windows),
    "decoding source, window shuffle, no threads": Program(_windows_one_by_one),
    "TFDS: decoding source that reads many, shuffle, batches": Program(_tfds),
    "TFDS: the same in a DataLoader": Program(_tfds_loader),
    "Parquet rows to dicts, batches": Program(_parquet, lump=160),
    "Parquet rows, window shuffle": Program(_parquet_windows, lump=5_000),
    "tokenising, filter, batches": Program(_tokens, _plain_tokens),
    "tokenising by index, batches": Program(_tokens_by_index),
}
