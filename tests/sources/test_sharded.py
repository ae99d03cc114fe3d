"""What all sources of several files share: numbering records through, and reading many at once."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from wholegrain.sources._cache import BoundedCache
from wholegrain.sources._handles import Handles
from wholegrain.sources._sharded import ShardedDataSource
from wholegrain.testing import check_source


class Pairs(ShardedDataSource[tuple[int, int]]):
    """Records that say where they are: (file, position)."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._set_counts(counts)

    def _read_one(self, file: int, position: int) -> tuple[int, int]:
        return file, position

    def _read_many(self, file: int, positions: Any) -> list[tuple[int, int]]:
        assert positions.dtype == np.int64
        assert len(positions)
        assert (np.diff(positions) >= 0).all()
        return [(file, position) for position in positions.tolist()]


@given(st.data(), st.lists(st.integers(0, 5), max_size=6))
def test_many_at_once_are_the_same_as_one_by_one(data: st.DataObject, counts: list[int]) -> None:
    source = Pairs(counts)
    expected = [(file, i) for file, count in enumerate(counts) for i in range(count)]
    assert len(source) == len(expected)
    assert list(source) == expected
    assert [source[key] for key in range(len(source))] == expected
    if not expected:
        return
    keys = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=30))
    forms: list[Any] = [keys, tuple(keys), np.array(keys, np.int64), np.array(keys, np.uint8)]
    for form in forms:
        assert source.__getitems__(form) == [expected[key] for key in keys]
    check_source(source)


@pytest.mark.parametrize("bad", [-1, 6, 2**40])
@pytest.mark.parametrize("good", [[], [0, 1, 2, 3, 4, 5]])
def test_the_key_that_is_not_there_is_named(good: list[int], bad: int) -> None:
    with pytest.raises(IndexError, match=f"Record {bad} was requested, but .* records 0 to 5"):
        Pairs([2, 4]).__getitems__([*good, bad])


def test_threads_open_a_file_once_and_different_files_at_the_same_time() -> None:
    both_opening = threading.Barrier(2, timeout=30)
    opened: list[int] = []

    def open_file(number: int) -> str:
        both_opening.wait()
        opened.append(number)
        return f"file {number}"

    handles = Handles(open_file, lambda _: None)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda n=number: found.append(handles.get(n)))
        for number in (0, 1, 0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(opened) == [0, 1]
    assert sorted(found) == ["file 0", "file 0", "file 1", "file 1"]


def test_a_file_that_cannot_be_opened_is_tried_again() -> None:
    failures = iter([OSError("not now")])

    def open_file(number: int) -> str:
        for failure in failures:
            raise failure
        return "open"

    handles = Handles(open_file, lambda _: None)
    with pytest.raises(OSError, match="not now"):
        handles.get(0)
    assert handles.get(0) == "open"


def test_a_value_that_cannot_be_made_is_tried_again() -> None:
    cache: BoundedCache[str] = BoundedCache(100)

    def fail() -> tuple[str, int]:
        raise OSError("not now")

    with pytest.raises(OSError, match="not now"):
        cache.get("key", fail)
    assert cache.get("key", lambda: ("made", 1)) == "made"
    assert cache.get("key", fail) == "made"


_MIXTURE = """
import os, resource, sys, threading
import wholegrain as wg
from wholegrain.sources import JsonlDataSource

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
folder, count = sys.argv[1], int(sys.argv[2])
parts = [wg.MapDataset.source(JsonlDataSource(f"{folder}/{n}.jsonl")) for n in range(count)]
ds = wg.MapDataset.mix([part.seed(1).shuffle() for part in parts])
found = sorted(ds.to_iter_dataset())
assert found == list(range(2 * count)), found
assert len(os.listdir("/proc/self/fd")) < 100
assert threading.active_count() <= 17, threading.enumerate()
"""


def test_a_mixture_of_many_sources_keeps_few_files_open(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("counts the open files in /proc")
    count = int(os.environ.get("WHOLEGRAIN_TEST_COMPONENTS", "150"))
    for number in range(count):
        (tmp_path / f"{number}.jsonl").write_text(f"{2 * number}\n{2 * number + 1}\n")
    command = [sys.executable, "-c", _MIXTURE, str(tmp_path), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("allow more with `ulimit -n`") == 1


def test_all_caches_of_a_process_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wholegrain.sources._cache._BYTES_OF_PROCESS", 1)
    # More than any other cache of this process may take, so that it is the limit of all.
    caches: list[BoundedCache[int]] = [BoundedCache(10 << 40) for _ in range(20)]
    for number, cache in enumerate(caches):
        for key in range(3):
            cache.get(key, lambda key=key: (key, 1 << 40))  # type: ignore[misc]
        assert cache.nbytes == 3 << 40, number
        assert sum(cache.nbytes for cache in caches) <= 10 << 40
    assert caches[0].nbytes == 0
    assert caches[0].get(0, lambda: (7, 1)) == 7
