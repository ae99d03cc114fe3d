"""JPEG images decoded, cropped and normalised in two worker processes.

How long decoding takes depends on where in memory arrays happen to lie: from one process to the
next it differs by up to 30%. So every sample has new processes, and each of them begins by moving
its heap by a random number of bytes.
"""

import multiprocessing
import os
import pickle
from collections.abc import Iterator
from io import BytesIO
from itertools import cycle, islice
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA
from harness.processes import allow_workers

IMAGES = 256
SIDE, CROP = 320, 224
BATCH = 64
AHEAD = 3  # As far as a worker runs ahead.
FILE = DATA / f"jpeg-{IMAGES}x{SIDE}.pickle"
MEAN = np.array([123.7, 116.3, 103.5], np.float32)
SCALE = (1 / np.array([58.4, 57.1, 57.4], np.float32)).astype(np.float32)

benchmark = Benchmark("JPEG of 320x320: decode, crop, normalise, batch(64), with 2 processes")
case = benchmark.case("2 workers", unit="image", digest_items=0, lead=24, seconds=3)


@benchmark.prepares
def prepare() -> None:
    """Write images with as much detail as photographs have."""
    from PIL import Image

    if FILE.exists():
        return
    rng = np.random.default_rng(5)
    images = []
    for _ in range(IMAGES):
        coarse = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        noise = rng.normal(0, 8, (SIDE, SIDE, 3))
        pixels = np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
        file = BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        images.append(file.getvalue())
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_bytes(pickle.dumps(images))


_kept: list[bytes] = []


def move_heap() -> None:
    """Have what this process allocates later lie anywhere."""
    numbers = np.frombuffer(os.urandom(32), np.uint16)
    _kept.extend(bytes(600 + int(number) % 40_000) for number in numbers)


def images() -> list[bytes]:
    content: list[bytes] = pickle.loads(FILE.read_bytes())
    return content


def decode(data: bytes) -> Any:
    from PIL import Image

    if not _kept:
        move_heap()
    start = (SIDE - CROP) // 2
    pixels = np.asarray(Image.open(BytesIO(data)).convert("RGB"))
    crop = pixels[start : start + CROP, start : start + CROP]
    return (crop - MEAN) * SCALE


@case.competitor("wholegrain", "grain", per_item=BATCH)
def dataset(grain: Any) -> Epoch:
    allow_workers(grain)
    ds = grain.MapDataset.source(images()).shuffle(seed=1).repeat().map(decode)
    ds = ds.to_iter_dataset().batch(BATCH)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return lambda epoch: ds


class Decoded:
    """The same elements for torch."""

    def __init__(self) -> None:
        self.images = images()

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return decode(self.images[index % IMAGES])


@case.competitor("torch", per_item=BATCH)
def torch_loader(torch: Any) -> Epoch:
    loader = torch.utils.data.DataLoader(Decoded(), BATCH, num_workers=2)
    return lambda epoch: loader


def decode_all(pipe: Any) -> None:
    """Decode images, and do nothing with them: 64 for each message, which is then answered."""
    endless_images = cycle(images())
    while True:
        pipe.send(pipe.recv())
        for data in islice(endless_images, BATCH):
            decode(data)


@case.competitor("wholegrain", name="two bare processes", per_item=BATCH)
def bare(_: Any) -> Epoch:
    def epoch(number: int) -> Iterator[Any]:
        context = multiprocessing.get_context("spawn")
        pipes, processes = [], []
        for _ in range(2):
            ours, theirs = context.Pipe()
            processes.append(context.Process(target=decode_all, args=(theirs,), daemon=True))
            processes[-1].start()
            for _ in range(AHEAD):
                ours.send(None)
            pipes.append(ours)
        try:
            for pipe in cycle(pipes):
                yield pipe.recv()
                pipe.send(None)
        finally:
            for process in processes:
                process.kill()
                process.join()

    return epoch


case.target(over="two bare processes", at_least=0.92)
case.target(over="grain", at_least=1)
case.target(over="torch", at_least=1)
