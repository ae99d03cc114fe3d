"""Records of 1 kB in ArrayRecord files, in globally shuffled order, batched."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.order import read_order, write_order
from harness.records import record_files, write_record_files

RECORDS = 200_000
NBYTES = 1_024
BATCH = 128

benchmark = Benchmark("200,000 ArrayRecord records of 1 kB: shuffle -> np.frombuffer -> batch(128)")


@benchmark.prepares
def prepare() -> None:
    write_order(RECORDS)
    for files in (1, 16):
        write_record_files(RECORDS, NBYTES, files)


def to_array(record: bytes) -> Any:
    return np.frombuffer(record, dtype=np.uint8)


def stack(records: list[bytes]) -> Any:
    return np.stack([to_array(record) for record in records])


def add_case(title: str, files: int, over_grain: float) -> None:
    case = benchmark.case(title, unit="record", digest_items=3, lead=500 // BATCH, seconds=1.0)
    paths = record_files(RECORDS, NBYTES, files)

    @case.competitor("wholegrain", "grain", per_item=BATCH)
    def dataset(grain: Any) -> Epoch:
        source = grain.sources.ArrayRecordDataSource(paths)

        def epoch(number: int) -> Any:
            ds = grain.MapDataset.source(source).shuffle(seed=number + 1).map(to_array)
            return ds.to_iter_dataset().batch(BATCH, drop_remainder=True)

        return epoch

    @case.competitor("torch", per_item=BATCH)
    def torch_loader(torch: Any) -> Epoch:
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        class Records(torch.utils.data.Dataset):  # type: ignore[misc]
            def __init__(self) -> None:
                self._source = ArrayRecordDataSource(paths)

            def __len__(self) -> int:
                return RECORDS

            def __getitems__(self, indices: list[int]) -> Any:
                return self._source.__getitems__(indices)

        order = read_order(RECORDS)
        loader = torch.utils.data.DataLoader(
            Records(), batch_size=BATCH, sampler=order, collate_fn=stack, drop_last=True
        )
        return lambda epoch: loader

    @case.competitor("wholegrain", name="loop of range reads", per_item=BATCH)
    def range_reads(_: Any) -> Epoch:
        from array_record.python.array_record_module import ArrayRecordReader

        options = {"options": "readahead_buffer_size:0", "file_reader_buffer_size": 32768}
        readers = [ArrayRecordReader(path, **options) for path in paths]
        per_file = RECORDS // files
        order = read_order(RECORDS)

        def epoch(number: int) -> Iterator[Any]:
            for start in range(0, RECORDS - BATCH + 1, BATCH):
                records = []
                for index in order[start : start + BATCH]:
                    file, key = divmod(index, per_file)
                    records.append(readers[file].read(key, key + 1)[0])
                yield stack(records)

        return epoch

    case.target(over="grain", at_least=over_grain)
    case.target(over="torch", at_least=2)
    case.target(over="loop of range reads", at_least=0.7)


add_case("one file", 1, over_grain=30)
add_case("16 files", 16, over_grain=15)
