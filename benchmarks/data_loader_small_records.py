"""Small records through a DataLoader, in large batches."""

from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.records import record_files, write_record_files

RECORDS = 50_000
NBYTES = 500
BATCH = 2_048

benchmark = Benchmark("DataLoader over 50,000 ArrayRecord records of 500 bytes, batches of 2,048")
case = benchmark.case("worker_count=0", unit="record", digest_items=2, lead=1, seconds=1.0)
PATHS = record_files(RECORDS, NBYTES, 1)


@benchmark.prepares
def prepare() -> None:
    write_record_files(RECORDS, NBYTES, 1)


@case.competitor("wholegrain", "grain", per_item=BATCH)
def data_loader(grain: Any) -> Epoch:
    class ToArray(grain.transforms.Map):  # type: ignore[misc]
        def map(self, record: bytes) -> Any:
            return np.frombuffer(record, dtype=np.uint8)

    source = grain.sources.ArrayRecordDataSource(PATHS)
    operations = [ToArray(), grain.transforms.Batch(BATCH, drop_remainder=True)]

    def epoch(number: int) -> Any:
        sampler = grain.samplers.IndexSampler(RECORDS, shuffle=True, num_epochs=1, seed=number + 1)
        return grain.DataLoader(
            data_source=source, sampler=sampler, operations=operations, worker_count=0
        )

    return epoch


case.target(over="grain", at_least=20)
