"""The order in which everyone reads: written once, by wholegrain, for those who cannot ask."""

from pathlib import Path
from typing import Any

from harness.environments import DATA


def _file(length: int, seed: int) -> Path:
    return DATA / f"order-{length}-{seed}.npy"


def write_order(length: int, seed: int = 1) -> None:
    """Write the global shuffle of `length` elements. Called by a benchmark's `prepare`."""
    import numpy as np

    import wholegrain

    DATA.mkdir(parents=True, exist_ok=True)
    shuffled = wholegrain.MapDataset.range(length).shuffle(seed=seed)
    np.save(_file(length, seed), np.fromiter(iter(shuffled), dtype=np.int64, count=length))


def read_order(length: int, seed: int = 1) -> list[int]:
    """Return the order that `write_order` wrote, as a list of int."""
    import numpy as np

    order: Any = np.load(_file(length, seed))
    return order.tolist()
