"""Large elements of `ds.cache(path)`, which are read into memory that is used again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graph.tools import source
from wholegrain._disk_cache.store import MISSING
from wholegrain.testing.checks import assert_equal

_RNG = np.random.default_rng(5)
ELEMENTS: list[Any] = [
    *(_RNG.bytes(size) for size in (10, 32_600, 32_768, 200_000, 300_000, 9_000_000)),
    *({"image": _RNG.bytes(size), "label": size} for size in (40_000, 250_000)),
    {"image": _RNG.bytes(100_000), "tokens": _RNG.integers(0, 9, 50_000)},
    [bytearray(_RNG.bytes(60_000)), "é" * 50_000, np.array([_RNG.bytes(50_000), None], object)],
]


def test_threads_do_not_share_the_memory(tmp_path: Path) -> None:
    cached = source([[element] for element in ELEMENTS]).map(lambda e: e[0]).cache(tmp_path)
    assert_equal(ELEMENTS, [cached[index] for index in range(len(ELEMENTS))], "computed")
    assert all(cached.store.get(index) is not MISSING for index in range(len(ELEMENTS)))
    order = np.random.default_rng(6).integers(0, len(ELEMENTS), 120)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(cached.store.get, order.tolist()))
    # Compared at the end: nothing that is read later changes what was returned.
    assert_equal([ELEMENTS[index] for index in order], found, "read")


class Reader:
    """An object that reads the cache while it is unpickled."""

    read: Any = None

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __getstate__(self) -> dict[str, Any]:
        # What comes later in the pickle has to survive that the cache is read here.
        return {"before": None, "data": self.data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.data = state["data"]
        if Reader.read is not None:
            Reader.read()


def test_an_element_may_read_the_cache_while_it_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [_RNG.bytes(100_000) for _ in range(3)]
    elements = [[Reader(blocks[0]), blocks[1]], blocks[2]]
    cached = source([[element] for element in elements]).map(lambda e: e[0]).cache(tmp_path)
    cached.getitems(np.arange(2))
    monkeypatch.setattr(Reader, "read", staticmethod(lambda: cached.store.get(1)))
    for _ in range(3):
        reader, after = cached.store.get(0)
        assert (reader.data, after) == (blocks[0], blocks[1])


def test_a_large_element_that_is_damaged_is_computed_again(tmp_path: Path) -> None:
    cached = source([[ELEMENTS[3]]]).map(lambda e: e[0]).cache(tmp_path)
    assert cached[0] == ELEMENTS[3]
    (data,) = tmp_path.glob("*/data-*")
    content = bytearray(data.read_bytes())
    content[100_000] ^= 1
    data.write_bytes(content)
    del cached
    cached = source([[ELEMENTS[3]]]).map(lambda e: e[0]).cache(tmp_path)
    assert cached.store.get(0) is MISSING
    data.write_bytes(content[:50_000])
    assert cached.store.get(0) is MISSING
    assert cached[0] == ELEMENTS[3]
