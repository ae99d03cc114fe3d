"""Rows of a Parquet file, in order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA

ROWS = 200_000
ROW_GROUP = 10_000
PATH = DATA / f"rows-{ROWS}.parquet"

benchmark = Benchmark("200,000 rows of Parquet: an int, a float and a string each")
in_order = benchmark.case("ParquetIterDataset", unit="row", digest_items=500)


@benchmark.prepares
def prepare() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if PATH.exists():
        return
    DATA.mkdir(parents=True, exist_ok=True)
    numbers = np.arange(ROWS)
    columns = {"id": numbers, "score": numbers / 7, "text": [f"row {n}" for n in range(ROWS)]}
    partial = PATH.with_suffix(".partial")
    pq.write_table(pa.table(columns), partial, row_group_size=ROW_GROUP)
    partial.rename(PATH)


@in_order.competitor("wholegrain", "grain", lump=ROW_GROUP)
def parquet_iter_dataset(grain: Any) -> Epoch:
    return lambda epoch: grain.experimental.ParquetIterDataset(str(PATH))


@in_order.competitor("wholegrain", name="plain pyarrow", lump=ROW_GROUP)
def plain_pyarrow(_: Any) -> Epoch:
    import pyarrow.parquet as pq

    def epoch(number: int) -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(PATH) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                names = table.column_names
                columns = [column.to_numpy() for column in table.columns]
                for row in zip(*columns, strict=True):
                    yield dict(zip(names, row, strict=True))

    return epoch


in_order.target(over="grain", at_least=1)
