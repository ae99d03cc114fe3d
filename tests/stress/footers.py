"""Compares what Arrow and our sources make of Parquet files with damaged footers.

    python -m tests.stress.footers COUNT SEED FOLDER

A program of its own, because Arrow may abort. It ends with 0 if a file that Arrow refuses gives no
rows here, if all others give Arrow's rows, and if statistics are Arrow's or unknown.
"""

import collections
import itertools
import os
import pickle
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stress.fuzz import _samples, mutated
from wholegrain import sources
from wholegrain.sources import DataFileError
from wholegrain.sources._files import LocalFile
from wholegrain.sources._parquet_footer import read_footer
from wholegrain.sources._parquet_reader import read_statistics

_DIED = "died"
pq: Any = pytest.importorskip("pyarrow.parquet")


def _damaged(sample: bytes, rng: random.Random) -> bytes:
    """Return the file with a damaged footer, whose length is right."""
    start = len(sample) - 8 - int.from_bytes(sample[-8:-4], "little")
    footer = mutated(sample[start:-8], rng)
    return sample[:start] + footer + len(footer).to_bytes(4, "little") + sample[-4:]


def _plain(value: Any) -> Any:
    """Return a value as Arrow gives it, apart from integers that become floats beside nulls."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    match value:
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case float() if value != value:
            return None
        case int() | float() if not isinstance(value, bool):
            return float(value)
    return value


def _rows_of_arrow(path: str) -> Any:
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(group) for group in range(file.metadata.num_row_groups)]
    return [_plain(row) for group in groups for row in group.to_pylist()]


def _rows(path: str) -> Any:
    source = sources.ParquetDataSource(path)
    return [_plain(row) for row in source.__getitems__(range(len(source)))]


def _statistics_of_arrow(path: str) -> Any:
    metadata = pq.ParquetFile(path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [[_null_count(group.column(n)) for n in range(group.num_columns)] for group in groups]


def _null_count(column: Any) -> int | None:
    found = column.statistics
    return found.null_count if found is not None and found.has_null_count else None


def _statistics(path: str) -> Any:
    file = LocalFile(path)
    try:
        found = read_statistics(read_footer(file))
    finally:
        file.close()
    return None if found is None else [[column.null_count for column in group] for group in found]


def _agree(found: list[list[Any]], known: list[list[Any]]) -> bool:
    """Say whether all counts are Arrow's, or unknown here, as negative ones are."""
    flat = itertools.chain.from_iterable
    pairs = zip(flat(found), flat(known), strict=False)
    same_shape = [*map(len, found)] == [*map(len, known)]
    return same_shape and all(ours in (None, theirs) for ours, theirs in pairs)


def _attempt(function: Callable[[str], Any], path: str) -> tuple[Any, str]:
    """Call a function in a process of its own; return what it returned, or the error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(60)
        try:
            result = function(path), ""
        except Exception as error:
            result = None, f"{type(error).__name__}: {error}"
            if isinstance(error, DataFileError | ValueError) and path not in str(error):
                result = None, f"UNNAMED {result[1]}"
        with open(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else (None, _DIED)


def _problems(path: str, seen: "collections.Counter[str]") -> Iterator[str]:
    theirs, refused = _attempt(_rows_of_arrow, path)
    ours, error = _attempt(_rows, path)
    seen["refused by Arrow" if refused else "read by Arrow"] += 1
    if error == _DIED:
        yield "Our source has ended the process."
    elif "UNNAMED" in error:
        yield f"The error does not name the file: {error}"
    elif refused and not error:
        yield f"Arrow refuses it ({refused}), but our source gives {len(ours)} rows."
    elif not refused and not error and ours != theirs:
        yield "The rows differ."
    elif not refused and error:
        seen["read by Arrow only"] += 1
    known, not_opened = _attempt(_statistics_of_arrow, path)
    found, failed = _attempt(_statistics, path)
    if failed:
        yield f"Reading statistics failed: {failed}"
    elif found is not None and not_opened and not_opened != _DIED:
        yield f"Arrow refuses the footer ({not_opened}), but statistics were found."
    elif found is not None and known is not None and not _agree(found, known):
        yield f"The statistics are {found}, but Arrow has {known}."
    seen["with statistics"] += found is not None


def main() -> int:
    count, seed, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    samples = _samples("parquet", folder / "sample")
    path = folder / "damaged"
    seen: collections.Counter[str] = collections.Counter()
    bad = False
    for number in range(count):
        rng = random.Random(f"footer {seed} {number}")
        path.write_bytes(_damaged(samples[number % len(samples)], rng))
        for problem in _problems(str(path), seen):
            bad = True
            print(f"mutation {number}: {problem[:300]}")
    print(dict(seen))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
