"""Rows of a Parquet file, in order and in shuffled order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch
from harness.environments import DATA
from harness.order import read_order, write_order

ROWS = 200_000
ROW_GROUP = 10_000
TAKEN = 64
BATCH = 64
PATH = DATA / f"rows-{ROWS}.parquet"

benchmark = Benchmark("200,000 rows of Parquet: an int, a float and a string each")
in_order = benchmark.case("ParquetIterDataset", unit="row", digest_items=500)
in_turn = benchmark.case("four files in turn", unit="row", digest_items=500)
mapped = benchmark.case("map(length of the text), batch(64)", unit="row", digest_items=200)
batched = benchmark.case("batch(64)", unit="row", digest_items=200)
# Grain has no random access to Parquet.
shuffled = benchmark.case("shuffled rows", unit="row", digest_items=0, lead=TAKEN)


@benchmark.prepares
def prepare() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_order(ROWS)
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


@in_turn.competitor("wholegrain", "grain", lump=4 * ROW_GROUP)
def several_files(grain: Any) -> Epoch:
    return lambda epoch: grain.experimental.ParquetIterDataset([str(PATH)] * 4)


def with_length(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "score": row["score"], "length": len(row["text"])}


@mapped.competitor("wholegrain", "grain", per_item=BATCH, lump=ROWS // BATCH)
def rows_to_batches(grain: Any) -> Epoch:
    dataset = grain.experimental.ParquetIterDataset
    return lambda epoch: dataset(str(PATH)).map(with_length).batch(BATCH)


@batched.competitor("wholegrain", "grain", per_item=BATCH, lump=ROWS // BATCH)
def columns_to_batches(grain: Any) -> Epoch:
    return lambda epoch: grain.experimental.ParquetIterDataset(str(PATH)).batch(BATCH)


@shuffled.competitor("wholegrain")
def parquet_data_source(wholegrain: Any) -> Epoch:
    synchronous = wholegrain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    rows = wholegrain.MapDataset.source(wholegrain.sources.ParquetDataSource(str(PATH)))
    return lambda epoch: rows.shuffle(seed=epoch + 1).to_iter_dataset(synchronous)


@shuffled.competitor("wholegrain", name="pyarrow take", lump=TAKEN)
def pyarrow_take(_: Any) -> Epoch:
    """The whole table in memory, 64 rows at a time."""
    import pyarrow.parquet as pq

    table = pq.read_table(PATH)
    order = read_order(ROWS)

    def epoch(number: int) -> Iterator[dict[str, Any]]:
        for start in range(0, ROWS, TAKEN):
            yield from table.take(order[start : start + TAKEN]).to_pylist()

    return epoch


in_order.target(over="grain", at_least=1.5)
in_turn.target(over="grain", at_least=5)
mapped.target(over="grain", at_least=5)
batched.target(over="grain", at_least=5)
shuffled.target(over="pyarrow take", at_least=1)
