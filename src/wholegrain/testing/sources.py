"""A check for data sources, which are read from threads and from other processes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from wholegrain.testing.checks import (
    assert_equal,
    assert_len,
    checked_length,
    groups_of,
    saying,
    some_positions,
)


def check_source(
    source: Any,
    *,
    max_elements: int = 64,
    num_threads: int = 4,
    seed: int = 0,
) -> None:
    """Check that a data source can be read from threads and processes.

    Every index from 0 to `len(source) - 1` has to return the same element each time: one by one,
    many at once if the source has `__getitems__` or `_getitems`, from several threads, and from a
    copy that was pickled as for worker processes.

    Args:
        source: The object that would be passed to `MapDataset.source` or to a `DataLoader`.
        max_elements: The maximum number of elements to read of a longer source.
        num_threads: How many threads read at once.
        seed: Selects the orders and the elements.

    Raises:
        AssertionError: If two reads of one element differ, or one of them fails.

    Example:
        >>> check_source([1, 2, 3])
    """
    length = checked_length(source, "source")
    rng = np.random.default_rng(seed)
    indices = some_positions(length, max_elements, rng)
    elements = {}
    for index in indices:
        with saying(f"source[{index}] could not be read, of {length}"):
            elements[index] = source[index]
    for index in reversed(indices):
        with saying(f"source[{index}] could not be read a second time"):
            again = source[index]
        assert_equal(elements[index], again, f"source[{index}], read a second time")

    for name in ("__getitems__", "_getitems"):
        read_many = getattr(source, name, None)
        if read_many is None:
            continue
        for chunk in groups_of(indices, (1, 2, 7), rng):
            with saying(f"source.{name}({chunk}) failed"):
                found = read_many(chunk)
            assert_len(len(chunk), found, f"source.{name}({chunk})")
            for position, index in enumerate(chunk):
                what = f"source.{name}({chunk})[{position}], the element at index {index}"
                assert_equal(elements[index], found[position], what)

    with saying("The source cannot be pickled, which worker processes need"):
        unpickled = cloudpickle.loads(cloudpickle.dumps(source))
    assert_equal(length, len(unpickled), "len() of the source after pickling")
    for index in indices:
        with saying(f"source[{index}] could not be read after pickling"):
            found = unpickled[index]
        assert_equal(elements[index], found, f"source[{index}], after pickling")

    def read_in_thread(thread: int) -> None:
        start = thread * len(indices) // num_threads
        for index in [*indices[start:], *indices[:start]]:
            with saying(f"source[{index}] could not be read from {num_threads} threads at once"):
                element = source[index]
            what = f"source[{index}], read from {num_threads} threads at once"
            assert_equal(elements[index], element, what)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(read_in_thread, range(num_threads)))
