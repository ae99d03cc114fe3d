"""Pipelines of every kind put together by chance, whose elements can be stacked."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wholegrain as wg
from tests.checkpoint import random_pipelines as parts
from wholegrain import experimental as X

LANES = 8


def is_kept(x: int) -> bool:
    return x % 3 != 0


def fails_at_37(x: int) -> int:
    if x == 37:
        raise RuntimeError("no 37")
    return x


def fails_at_1(x: int) -> int:
    if x == 1:
        raise ValueError("fails at 1")
    return x


def is_below_50(x: int) -> bool:
    return x < 50


def as_pair(x: int) -> Any:
    return {"x": np.array([x, -x])}


class Seen:
    """A filter that leaves a trace in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, x: int) -> bool:
        with self._file.open("a") as file:
            file.write(".")
        return is_kept(x)


def random_pipeline(seed: int) -> Any:
    """Return a MapDataset or an IterDataset, without batches and shards."""
    choose = random.Random(seed)
    if choose.random() < 0.2:
        return parts._indexable(choose)
    if choose.random() < 0.3:
        return choose.choice(_LAST)(_files(choose))
    return choose.choice(_LAST)(parts._iterable(choose, parts._indexable(choose)))


def _files(choose: random.Random) -> Any:
    """Return an interleave of files of different lengths, each shuffled."""
    files = [
        wg.MapDataset.range(100 * number, 100 * number + choose.randrange(3, 15)).shuffle(number)
        for number in range(LANES + choose.randrange(12))
    ]
    ds: Any = X.InterleaveIterDataset(files, cycle_length=choose.choice([1, 3, 20]))
    return choose.choice(parts._IN_ORDER)(ds, choose.randrange(100))


_LAST: list[Callable[[Any], Any]] = [
    lambda ds: ds,
    lambda ds: ds.map(lambda x: {"x": x, "y": np.array([x, -x], np.float32)}),
    lambda ds: X.ZipIterDataset([ds, ds.map(parts.plus_seven)]),
    lambda ds: X.FirstFitPackIterDataset(
        ds.map(parts.as_tokens), length_struct={"x": 6}, num_packing_bins=3
    ),
    lambda ds: X.ConcatThenSplitIterDataset(ds.map(parts.as_tokens), length_struct={"x": 6}),
]
