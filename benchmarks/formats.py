"""JSONL rows in random order beside Hugging Face, and tar files beside WebDataset."""

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA

ROWS = 100_000
SAMPLES = 10_000
JSONL = DATA / f"{ROWS}.jsonl"
TAR = DATA / f"{SAMPLES}.tar"
CHUNK = 64

# The environments share the folder, so that indexes and converted tables are made once.
os.environ.setdefault("WHOLEGRAIN_CACHE", str(DATA / "cache"))

benchmark = Benchmark(
    "100,000 rows of JSONL in random order; 10,000 samples of a tar file in order"
)
single = benchmark.case("a row at a time", unit="row", digest_items=500)
many = benchmark.case("64 rows at a time", unit="row", digest_items=20)
tar = benchmark.case("tar samples in order", unit="sample", digest_items=200)
shuffled = benchmark.case("tar samples shuffled", unit="sample", digest_items=200)


def _write(path: Path, parts: Iterator[bytes]) -> None:
    if path.exists():
        return
    DATA.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.writelines(parts)
    partial.rename(path)


def _rows() -> Iterator[bytes]:
    rng = np.random.default_rng(3)
    words = ["".join(map(chr, rng.integers(97, 123, size))) for size in rng.integers(2, 10, 5000)]
    for number in range(ROWS):
        text = " ".join(words[word] for word in rng.integers(0, 5000, 60))
        row = {"id": number, "text": text, "score": float(rng.random()), "lang": "en"}
        yield json.dumps(row).encode() + b"\n"


def _samples() -> Iterator[bytes]:
    rng = np.random.default_rng(4)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(SAMPLES):
            for ending, content in (("jpg", rng.bytes(4000)), ("cls", b"%d" % (number % 10))):
                info = tarfile.TarInfo(f"{number:06d}.{ending}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    yield out.getvalue()


@benchmark.prepares
def prepare() -> None:
    _write(JSONL, _rows())
    _write(TAR, _samples())


def _order(epoch: int, count: int) -> Any:
    return np.random.default_rng(epoch).permutation(count)


def _one_by_one(source: Any) -> Epoch:
    return lambda epoch: map(source.__getitem__, _order(epoch, ROWS).tolist())


def _in_chunks(source: Any) -> Epoch:
    def epoch(number: int) -> Iterator[Any]:
        order = _order(number, ROWS).tolist()
        for start in range(0, ROWS - CHUNK, CHUNK):
            yield source.__getitems__(order[start : start + CHUNK])

    return epoch


def _table(datasets: Any) -> Any:
    cache = str(DATA / "cache" / "datasets")
    return datasets.load_dataset("json", data_files=str(JSONL), split="train", cache_dir=cache)


@single.competitor("wholegrain", lump=2000)
def jsonl_source(wg: Any) -> Epoch:
    from wholegrain.sources import JsonlDataSource

    return _one_by_one(JsonlDataSource(JSONL))


@single.competitor("wholegrain", name="wholegrain, shuffled pipeline", lump=5000, ordered=False)
def jsonl_pipeline(wg: Any) -> Epoch:
    """The usual way: the pipeline reads many rows in one call."""
    from wholegrain.sources import JsonlDataSource

    ds = wg.MapDataset.source(JsonlDataSource(JSONL)).shuffle(seed=1)
    return lambda epoch: ds.to_iter_dataset()


@single.competitor("datasets", lump=2000)
def datasets_rows(datasets: Any) -> Epoch:
    return _one_by_one(_table(datasets))


@many.competitor("wholegrain", per_item=CHUNK, lump=30)
def jsonl_source_in_chunks(wg: Any) -> Epoch:
    from wholegrain.sources import JsonlDataSource

    return _in_chunks(JsonlDataSource(JSONL))


@many.competitor("datasets", per_item=CHUNK, lump=30)
def datasets_rows_in_chunks(datasets: Any) -> Epoch:
    return _in_chunks(_table(datasets))


@many.competitor("wholegrain", name="json.loads alone", per_item=CHUNK, lump=30)
def only_parse(_: Any) -> Epoch:
    """Parse lines that are in memory."""
    lines = JSONL.read_bytes().splitlines()

    class Lines:
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [json.loads(lines[index]) for index in indices]

    return _in_chunks(Lines())


def _parts(samples: Any) -> Iterator[tuple[str, bytes, bytes]]:
    for sample in samples:
        yield sample["__key__"], sample["jpg"], sample["cls"]


@tar.competitor("wholegrain", lump=1000)
def tar_iter_dataset(wg: Any) -> Epoch:
    from wholegrain.experimental import TarIterDataset

    return lambda epoch: _parts(TarIterDataset(TAR))


@tar.competitor("wholegrain", name="wholegrain, by its index", lump=1000)
def tar_source(wg: Any) -> Epoch:
    from wholegrain.sources import TarDataSource

    source = TarDataSource(TAR)
    return lambda epoch: _parts(wg.MapDataset.source(source).to_iter_dataset())


@tar.competitor("webdataset", lump=1000)
def webdataset_samples(webdataset: Any) -> Epoch:
    return lambda epoch: _parts(webdataset.WebDataset(str(TAR), shardshuffle=False))


@shuffled.competitor("wholegrain", lump=1000)
def tar_source_shuffled(wg: Any) -> Epoch:
    from wholegrain.sources import TarDataSource

    source = TarDataSource(TAR)
    ds = wg.MapDataset.source(source).shuffle(seed=1)
    return lambda epoch: _parts(ds.to_iter_dataset())


single.target("wholegrain, shuffled pipeline", over="datasets", at_least=5)
single.target(over="datasets", at_least=3)
many.target(over="datasets", at_least=1)
tar.target("wholegrain, by its index", over="webdataset", at_least=5)
tar.target(over="webdataset", at_least=3)
