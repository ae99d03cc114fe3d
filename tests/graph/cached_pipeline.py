"""A pipeline with a cache, read by a process of its own that may be killed at any time."""

import random
import sys
import zlib
from typing import Any

import numpy as np

import wholegrain as wg

LENGTH = 300
NBYTES = 2_000


def element(number: int) -> dict[str, Any]:
    """Return an element that is different for each number."""
    seed = zlib.crc32(b"%d" % number)
    length = NBYTES + seed % 500
    values = np.random.default_rng(seed).integers(0, 255, length, np.uint8)
    return {"number": number, "values": values, "text": f"text {seed}"}


def pipeline(path: str, max_bytes: int | None = None) -> wg.MapDataset[dict[str, Any]]:
    """Return the pipeline."""
    return wg.MapDataset.range(LENGTH).map(element).cache(path, max_bytes)


def is_right(number: int, found: dict[str, Any]) -> bool:
    """Return whether an element is the right one."""
    right = element(number)
    return (
        list(found) == list(right)
        and found["number"] == number
        and found["text"] == right["text"]
        and np.array_equal(found["values"], right["values"])
    )


def main(path: str, max_bytes: str, seed: str) -> None:
    """Read elements at random and check them, until killed."""
    ds = pipeline(path, int(max_bytes) or None)
    rng = random.Random(int(seed))
    print("ready", flush=True)
    while True:
        numbers = [rng.randrange(LENGTH) for _ in range(rng.choice([1, 5, 20]))]
        for number, found in zip(numbers, ds.getitems(np.array(numbers)), strict=True):
            if found is None or not is_right(number, found):
                print("WRONG", number, flush=True)
                sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
