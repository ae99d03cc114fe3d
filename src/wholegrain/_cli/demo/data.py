"""The demo's images, in ArrayRecord files, and the pipeline that trains on them."""

import functools
import itertools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain._core.types import NDArray
from wholegrain.sources import ArrayRecordDataSource
from wholegrain.sources._optional import require

Image = NDArray[np.uint8]

SIZE = 32  # pixels
BATCH_SIZE = 64
NUM_WORKERS = 2
BUFFER_SIZE = 4
MOST_READY = 2 * BUFFER_SIZE + 1  # finished batches of a worker
_NUM_SHARDS = 2
_STATUS = "workers"
_COLOURS = np.array(
    [(230, 80, 70), (240, 170, 60), (110, 190, 90), (70, 180, 200), (90, 110, 220), (190, 100, 200)]
)


# The data.


def images(count: int) -> Iterator[Image]:
    """Yield images of two discs with random colours, positions and sizes."""
    rows, columns = np.ogrid[:SIZE, :SIZE]
    lowest, highest = (7, 7, 4), (SIZE - 7, SIZE - 7, 10)
    discs = np.random.default_rng(0).integers(lowest, highest, (count, 2, 3)).tolist()
    for label, places in enumerate(discs):
        image = np.full((SIZE, SIZE, 3), 28, np.uint8)
        for colour, (row, column, radius) in zip((label + 2, label), places, strict=True):
            inside = (rows - row) ** 2 + (columns - column) ** 2 <= radius**2
            image[inside] = _COLOURS[colour % 6]
        yield image


def write_images(folder: Path, count: int) -> Iterator[int]:
    """Write images to ArrayRecord files; yield the progress now and then."""
    library = require(
        "array_record.python.array_record_module", extra="array-record", purpose="The demo"
    )
    yield 0
    numbered = enumerate(images(count))
    for shard in range(_NUM_SHARDS):
        name = f"images-{shard:05d}-of-{_NUM_SHARDS:05d}.array_record"
        # Without groups, for random access.
        writer = library.ArrayRecordWriter(str(folder / name), "group_size:1")
        stop = (shard + 1) * count // _NUM_SHARDS
        for index, image in itertools.islice(numbered, stop - shard * count // _NUM_SHARDS):
            writer.write(struct.pack("<II", index, index % 6) + image.tobytes())
            if index % 500 == 499:
                yield index + 1
        writer.close()


def decode(record: bytes) -> dict[str, Any]:
    """Return the image of a record, its number and its label."""
    index, label = np.frombuffer(record, "<u4", count=2)
    pixels = np.frombuffer(record, np.uint8, offset=8).reshape(SIZE, SIZE, 3)
    return {"image": pixels, "label": label, "index": index}


def augment(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Randomly flip, shift and change the brightness, and add noise."""
    image = element["image"]
    if rng.random() < 0.5:
        image = image[:, ::-1]
    image = np.roll(image, rng.integers(-4, 5, 2), (0, 1))
    light = rng.uniform(0.6, 1.2, 3).astype(np.float32)
    noise = rng.standard_normal(image.shape, np.float32) * 6
    _count_image()
    return {**element, "image": (image * light + noise).clip(0, 255).astype(np.uint8)}


def pipeline(folder: Path) -> wg.IterDataset[Any]:
    """Return the batches of all epochs, each with its own order and augmentation."""
    source = ArrayRecordDataSource(str(folder / f"images@{_NUM_SHARDS}.array_record"))
    return (
        wg.MapDataset.source(source)
        .seed(42)
        .shuffle()
        .map(decode)
        .random_map(augment)
        .repeat()
        .batch(BATCH_SIZE)
        .to_iter_dataset()
        .mp_prefetch(
            wg.MultiprocessingOptions(NUM_WORKERS, per_worker_buffer_size=BUFFER_SIZE),
            worker_init_fn=functools.partial(_start_counting, str(folder / _STATUS)),
        )
    )


# Worker progress: each worker counts its images in a file that all processes map.

_counts: NDArray[np.int64] | None = None


def new_counts(folder: Path) -> NDArray[np.int64]:
    """Return a file in which the next workers store their process ids and counts."""
    path = folder / _STATUS
    path.unlink(missing_ok=True)  # workers of an earlier run may still write to it
    path.write_bytes(bytes(8 * 2 * NUM_WORKERS))
    return _map_counts(str(path))


def _map_counts(path: str) -> NDArray[np.int64]:
    return np.asarray(np.memmap(path, np.int64, "r+", shape=(NUM_WORKERS, 2)))


def _start_counting(path: str, index: int, count: int) -> None:
    global _counts
    _counts = _map_counts(path)[index]
    _counts[:] = os.getpid(), 0


def _count_image() -> None:
    if _counts is not None:
        _counts[1] += 1
