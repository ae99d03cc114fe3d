import io
import mmap
import pickle
import pickletools
import threading
from typing import Any

import numpy as np
import pytest

from tests.workers.iterators import Mapped, remote
from wholegrain._workers.local import launcher
from wholegrain._workers.pickling import PROTOCOL, ByValuePickler
from wholegrain._workers.program import Program, ProgramCopy, load
from wholegrain._workers.remote import RemoteIterator


def content(program: Program) -> bytearray:
    data = bytearray(program.nbytes)
    for start, piece in program.pieces():
        data[start : start + len(piece)] = piece
    return data


def loaded(program: Program) -> Any:
    copy = ProgramCopy(program.pickle_nbytes, program.parts)
    return load(copy, content(program))


def test_large_arrays_are_left_out_of_the_pickle_and_not_copied() -> None:
    array = np.arange(1_000_000)
    program = Program.pack(lambda index, count: Mapped(index, lambda n: array[n]))
    assert program.pickle_nbytes < 10_000
    assert [part.nbytes for part in program.parts] == [array.nbytes]
    assert np.shares_memory(np.frombuffer(program.pieces()[-1][1], np.int64), array)
    iterator: Any = loaded(program)(5, 1)
    assert iterator.function(999_999) == 999_999


def test_arrays_keep_their_alignment_and_whether_they_can_be_written() -> None:
    fixed = np.arange(100_001, dtype=np.uint8)
    fixed.flags.writeable = False
    free = np.arange(100_001, dtype=np.float64)
    program = Program.pack(lambda index, count: Mapped(1, lambda n: (fixed, free)))
    iterator: Any = loaded(program)(0, 1)
    loaded_fixed, loaded_free = iterator.function(0)
    assert not loaded_fixed.flags.writeable
    assert loaded_free.flags.writeable
    assert loaded_free.flags.aligned
    np.testing.assert_array_equal(loaded_fixed, fixed)
    np.testing.assert_array_equal(loaded_free, free)


def test_large_strings_are_not_copied_while_packing() -> None:
    data = b"x" * 10_000_000
    program = Program.pack(lambda index, count: Mapped(1, lambda n: len(data)))
    assert any(piece is data for _, piece in program.pieces())
    iterator: Any = loaded(program)(0, 1)
    assert iterator.function(0) == 10_000_000


def test_what_cannot_be_pickled_raises_the_original_error_with_a_note() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle") as error:
        Program.pack(lambda index, count: Mapped(1, lambda n: lock))
    assert "has to be picklable" in error.value.__notes__[-1]


def writes_to_its_source() -> list[Any]:
    table = np.zeros((100, 1000))

    def change(number: int) -> Any:
        table[number] += 1
        return table.sum(axis=1)

    return [list(remote(3, change)) for _ in range(2)]


def test_a_worker_may_write_to_arrays_of_its_program_and_only_it_sees_that() -> None:
    for results in writes_to_its_source():
        np.testing.assert_array_equal(results[2][:4], [1000, 1000, 1000, 0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WHOLEGRAIN_WORKER_START", "spawn"),
        ("WHOLEGRAIN_SHARED_MEMORY", "named"),
        ("WHOLEGRAIN_SHARED_MEMORY", "unlinked"),
    ],
)
def test_programs_reach_workers_however_those_are_started(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.close_launchers()
    monkeypatch.setenv(name, value)
    try:
        for results in writes_to_its_source():
            np.testing.assert_array_equal(results[2][:4], [1000, 1000, 1000, 0])
        parts = odd_sizes()
        assert_equal_parts(received(parts), parts)
    finally:
        launcher.close_launchers()


def measured(program: Program) -> list[Any]:
    """Return the first element of three workers that run at the same time."""
    iterators: list[RemoteIterator[Any]] = [
        RemoteIterator(program, index, 3, buffer_size=1, initial_state=None) for index in range(3)
    ]
    for iterator in iterators:
        iterator.start_prefetch()
    return [next(iterator) for iterator in iterators]


def own_memory() -> int:
    """Return how many bytes this process has that no other one sees, and that are in no file."""
    total = private = 0
    with open("/proc/self/smaps") as file:
        for line in file:
            if line.startswith(("Private_Clean", "Private_Dirty")):
                private += int(line.split()[1])
            elif line.startswith("Anonymous"):
                total += min(private, int(line.split()[1]))
                private = 0
    return total * 1024


def test_all_workers_share_one_copy_of_the_arrays() -> None:
    table = np.ones(64 << 20, np.uint8)

    def measure(number: int) -> tuple[int, int]:
        return int(table[:: mmap.PAGESIZE].sum()), own_memory()

    for total, memory in measured(Program.pack(lambda index, count: Mapped(1, measure))):
        assert total == (64 << 20) // mmap.PAGESIZE
        assert memory < 48 << 20


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_all_workers_share_one_copy_of_large_bytes(kind: type[bytes] | type[bytearray]) -> None:
    records = [kind(bytes([number]) * (1 << 20)) for number in range(64)]

    def measure(number: int) -> tuple[list[int], int]:
        return [sum(record[:: mmap.PAGESIZE]) for record in records], own_memory()

    for totals, memory in measured(Program.pack(lambda index, count: Mapped(1, measure))):
        assert totals == [number * (1 << 20) // mmap.PAGESIZE for number in range(64)]
        assert memory < 48 << 20


class Blob:
    """An object that is not plain `bytes`, though it is made of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def received(value: Any) -> Any:
    """Return what a worker finds in its program, and sends back."""
    [copy] = list(remote(1, lambda n: value))
    return copy


def odd_sizes() -> list[Any]:
    parts: list[Any] = [
        bytes([1]) * 100_000,
        np.arange(50_000),
        bytearray([2]) * 70_000,
        bytes([3]) * 100,
        "four" * 50_000,
        Blob(bytes([5]) * 200_000),
        memoryview(bytes([6]) * 300_000),
        np.arange(600),
    ]
    return [*parts, parts[0], {"again": parts[2]}]


def assert_equal_parts(found: list[Any], parts: list[Any]) -> None:
    kinds = [bytes, np.ndarray, bytearray, bytes, str, Blob, bytes, np.ndarray, bytes, dict]
    assert [type(part).__name__ for part in found] == [kind.__name__ for kind in kinds]
    for one, other in zip(found, parts, strict=True):
        if isinstance(other, Blob):
            assert one.data == other.data
        else:
            np.testing.assert_equal(one, other)
    assert found[8] is found[0]
    assert found[9]["again"] is found[2]


def test_large_bytes_are_left_out_of_the_pickle_in_the_order_of_everything() -> None:
    parts = odd_sizes()
    program = Program.pack(lambda index, count: Mapped(1, lambda n: parts))
    assert program.nbytes - program.nbytes_without_objects > 600_000
    assert_equal_parts(loaded(program)(0, 1).function(0), parts)
    assert_equal_parts(received(parts), parts)


def test_the_pickle_without_large_bytes_is_well_formed() -> None:
    small, large = b"small" * 10, bytes(1 << 17)
    parts = [large, small, bytearray(1 << 16), [large, "text" * 50_000], bytes(1 << 12), small]
    factory: Any = parts.index
    program = Program.pack(factory)
    pickled = bytes(content(program)[: program.pickle_nbytes])
    pickletools.dis(pickled, out=io.StringIO())  # Raises if the stack or the memo is not right.

    plain = io.BytesIO()
    ByValuePickler(plain, PROTOCOL).dump(factory)
    kinds = {"BINBYTES", "BINBYTES8", "BYTEARRAY8"}
    expected = [
        ("NEXT_BUFFER", None)
        if code.name in kinds and isinstance(value, (bytes, bytearray)) and len(value) >= 1 << 16
        else (code.name, value)
        for code, value, _ in pickletools.genops(plain.getvalue())
        if code.name != "FRAME"
    ]
    found = [(code.name, value) for code, value, _ in pickletools.genops(pickled)]
    assert [one for one in found if one[0] != "FRAME"] == expected
    assert expected.count(("NEXT_BUFFER", None)) == len(program.parts) == 2
    assert pickle.loads(plain.getvalue())(small) == 1


def test_a_worker_may_write_to_a_bytearray_of_its_program_and_only_it_sees_that() -> None:
    data = bytearray(100_000)

    def change(number: int) -> int:
        data[number] += 1
        return sum(data)

    for _ in range(2):
        assert list(remote(3, change)) == [1, 2, 3]
    assert sum(data) == 0
