import gc
import os
import pickle
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from wholegrain.sources import RangeDataSource, SharedMemoryDataSource
from wholegrain.testing import check_source

VALUES = [1, -(2**63), 2.5, True, False, "abc", "naïve\0\0", b"xyz\0", b"", "", None]


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_a_range_has_the_numbers_of_a_python_range(start: int, stop: int, step: int) -> None:
    expected = list(range(start, stop, step))
    try:
        source = RangeDataSource(start, stop, step)
    except ValueError:
        assert (stop - start) * step < 0
        return
    assert [source[index] for index in range(len(source))] == expected
    assert source.__getitems__(list(range(len(source)))) == expected
    assert list(source) == expected


def test_a_range_is_a_source_with_a_stable_repr() -> None:
    source = RangeDataSource(start=0, stop=10, step=3)
    assert repr(source) == "RangeDataSource(start=0, stop=10, step=3)"
    check_source(source)


def test_a_range_beyond_64_bits_is_exact() -> None:
    source = RangeDataSource(2**70, 2**70 + 30, 10)
    assert source.__getitems__([2, 0]) == [2**70 + 20, 2**70]


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 10, 0), (0, 10, -1), (10, 0, 2)])
def test_a_range_that_goes_the_wrong_way_is_refused(start: int, stop: int, step: int) -> None:
    with pytest.raises(ValueError, match="step"):
        RangeDataSource(start, stop, step)
    with pytest.raises(AssertionError):
        RangeDataSource(start, stop, step)


@pytest.mark.parametrize("index", [-1, 4, 100])
def test_a_range_has_no_numbers_outside(index: int) -> None:
    with pytest.raises(IndexError, match="records 0 to 3"):
        RangeDataSource(0, 10, 3)[index]
    with pytest.raises(IndexError, match="records 0 to 3"):
        RangeDataSource(0, 10, 3).__getitems__([0, index])


@pytest.mark.parametrize("index", [1.0, "1", slice(0, 2), None])
def test_a_range_is_indexed_by_whole_numbers(index: Any) -> None:
    with pytest.raises(TypeError):
        RangeDataSource(0, 10, 3)[index]
    with pytest.raises(AttributeError):
        RangeDataSource(0, 10, 3)[index]


def test_shared_memory_gives_back_what_was_put_in() -> None:
    source = SharedMemoryDataSource(VALUES)
    assert list(source) == VALUES
    assert [type(value) for value in source] == [type(value) for value in VALUES]
    assert source[-1] is None
    assert source.__getitems__([5, 0]) == ["abc", 1]
    assert (source.count("abc"), source.index("abc")) == (1, 5)
    check_source(source)


@given(st.lists(st.none() | st.booleans() | st.floats() | st.text() | st.binary(), max_size=20))
def test_shared_memory_keeps_every_byte(values: list[Any]) -> None:
    source = SharedMemoryDataSource(values)
    assert repr(list(source)) == repr(values)


def test_shared_memory_shows_neither_data_nor_a_random_name_in_its_repr() -> None:
    source = SharedMemoryDataSource(["secret"], name=f"wg_test_{os.getpid()}")
    assert repr(source) == "SharedMemoryDataSource(len=1)"
    assert str(source) == f"InMemoryDataSource(name=wg_test_{os.getpid()}, len=1)"


def test_shared_memory_is_found_by_its_name() -> None:
    name = f"wg_test_name_{os.getpid()}"
    source = SharedMemoryDataSource([1, "two"], name=name)
    assert list(SharedMemoryDataSource(name=name)) == [1, "two"]
    with pytest.raises(FileExistsError):
        SharedMemoryDataSource([1], name=name)
    source.unlink()
    with pytest.raises(FileNotFoundError):
        SharedMemoryDataSource(name=name)


def test_shared_memory_needs_elements_or_a_name() -> None:
    with pytest.raises(ValueError, match="neither"):
        SharedMemoryDataSource()


@pytest.mark.parametrize("value", [object(), [1], 1j, {"a": 1}])
def test_shared_memory_names_the_element_that_it_cannot_hold(value: object) -> None:
    with pytest.raises(TypeError, match="Element 2 is of type"):
        SharedMemoryDataSource([0, 1, value])


def test_shared_memory_names_the_integer_that_is_too_large() -> None:
    with pytest.raises(OverflowError, match="Element 1 is 9223372036854775808"):
        SharedMemoryDataSource([0, 2**63])


@pytest.mark.parametrize("index", [2, -3, 100])
def test_shared_memory_has_no_elements_outside(index: int) -> None:
    with pytest.raises(IndexError, match="2 elements"):
        SharedMemoryDataSource([1, 2])[index]


def test_shared_memory_is_not_sliced() -> None:
    with pytest.raises(TypeError):
        SharedMemoryDataSource([1, 2])[0:1]  # type: ignore[index]


def test_elements_of_shared_memory_are_replaced_within_their_slots() -> None:
    source = SharedMemoryDataSource([1, "abc", 2.5])
    source[0] = "12345678"
    source[1] = 7
    source[2] = None
    assert list(source) == ["12345678", 7, None]
    assert source.format == "8sqxxxxxx?x"
    with pytest.raises(ValueError, match="room for 8 bytes"):
        source[0] = "123456789"


def test_closed_shared_memory_says_so() -> None:
    source = SharedMemoryDataSource([1])
    source.close()
    with pytest.raises(ValueError, match="closed"):
        source[0]


def _exists(name: str) -> bool:
    return os.path.exists(f"/dev/shm/{name}")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="lists shared memory")
def test_shared_memory_is_removed_with_its_source() -> None:
    source = SharedMemoryDataSource([1])
    name = source.shm.name
    assert _exists(name)
    del source
    gc.collect()
    assert not _exists(name)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="lists shared memory")
def test_shared_memory_outlives_a_source_that_was_pickled() -> None:
    pickled = pickle.dumps(SharedMemoryDataSource([1, "two"]))
    gc.collect()
    source = pickle.loads(pickled)
    assert list(source) == [1, "two"]
    source.unlink()
    assert not _exists(source.shm.name)


_CREATE = """
import sys
from wholegrain.sources import SharedMemoryDataSource
named = SharedMemoryDataSource(["a", 1], name=sys.argv[1])
unnamed = SharedMemoryDataSource(["b"])
print(unnamed.shm.name, flush=True)
sys.stdin.read()
"""
_ATTACH = """
import sys
from wholegrain.sources import SharedMemoryDataSource
print(list(SharedMemoryDataSource(name=sys.argv[1])))
"""


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="lists shared memory")
def test_other_processes_attach_and_only_the_creating_one_removes() -> None:
    name = f"wg_test_processes_{os.getpid()}"
    creating = subprocess.Popen(
        [sys.executable, "-c", _CREATE, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert creating.stdout is not None
    unnamed = creating.stdout.readline().strip()
    for _ in range(2):  # a process that attaches and ends leaves the memory to others
        attached = subprocess.run(
            [sys.executable, "-c", _ATTACH, name], capture_output=True, text=True, check=True
        )
        assert attached.stdout == "['a', 1]\n"
        assert attached.stderr == ""
    _, errors = creating.communicate("")
    assert errors == ""  # no warnings about leaked memory at exit
    assert not _exists(name)
    assert not _exists(unnamed)


def test_memory_of_others_is_not_taken_for_a_source() -> None:
    from multiprocessing.shared_memory import SharedMemory

    block = SharedMemory(create=True, size=64)
    try:
        with pytest.raises(ValueError, match="not created by"):
            SharedMemoryDataSource(name=block.name)
    finally:
        block.close()
        block.unlink()
