"""Elements of `ds.cache(path)`, against records of the same bytes in ArrayRecord files."""

import atexit
import shutil
import tempfile
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA
from harness.records import record_files, write_record_files

BATCH = 16
SIZES = {1_000: 50_000, 10_000: 10_000, 200_000: 1_000}

benchmark = Benchmark("The cache of elements in random order, against ArrayRecord")


@benchmark.prepares
def prepare() -> None:
    for nbytes, records in SIZES.items():
        write_record_files(records, nbytes, 1)


def to_dict(record: bytes) -> dict[str, Any]:
    return {"x": np.frombuffer(record, np.uint8), "label": 7}


def batches(ds: Any) -> Epoch:
    return lambda epoch: ds.shuffle(seed=epoch + 1).batch(BATCH, batch_fn=list)


def add_case(nbytes: int, records: int) -> None:
    case = benchmark.case(f"{nbytes:,} bytes", unit="element", digest_items=3, seconds=0.3)
    paths = record_files(records, nbytes, 1)

    def cached(ds: Any) -> Any:
        folder = tempfile.mkdtemp(prefix="elements-", dir=DATA)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        kept = ds.cache(folder)
        for _ in kept:
            pass
        return kept

    @case.competitor("wholegrain", per_item=BATCH)
    def dicts(grain: Any) -> Epoch:
        """A dict with an array and a number."""
        source = grain.sources.ArrayRecordDataSource(paths)
        return batches(cached(grain.MapDataset.source(source).map(to_dict)))

    @case.competitor("wholegrain", name="bytes", per_item=BATCH, ordered=False)
    def only_bytes(grain: Any) -> Epoch:
        return batches(cached(grain.MapDataset.source(grain.sources.ArrayRecordDataSource(paths))))

    @case.competitor("wholegrain", name="ArrayRecord", per_item=BATCH)
    def array_record(grain: Any) -> Epoch:
        source = grain.sources.ArrayRecordDataSource(paths)
        return batches(grain.MapDataset.source(source).map(to_dict))

    case.target(over="ArrayRecord", at_least=0.7)
    case.target("bytes", over="ArrayRecord", at_least=0.7)


for _nbytes, _records in SIZES.items():
    add_case(_nbytes, _records)
