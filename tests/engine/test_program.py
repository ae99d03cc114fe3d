import mmap
import threading
from typing import Any

import numpy as np
import pytest

from tests.engine.iterators import Mapped, remote
from wholegrain._engine import launcher
from wholegrain._engine.program import Program, load


def content(program: Program) -> bytearray:
    data = bytearray(program.nbytes)
    for start, piece in program.pieces():
        data[start : start + len(piece)] = piece
    return data


def test_large_arrays_are_left_out_of_the_pickle_and_not_copied() -> None:
    array = np.arange(1_000_000)
    program = Program.pack(lambda index, count: Mapped(index, lambda n: array[n]))
    assert program.sizes[0] < 10_000
    assert program.sizes[1:] == (array.nbytes,)
    assert np.shares_memory(np.frombuffer(program.pieces()[-1][1], np.int64), array)
    iterator: Any = load(program.sizes, content(program))(5, 1)
    assert iterator.function(999_999) == 999_999


def test_arrays_keep_their_alignment_and_whether_they_can_be_written() -> None:
    fixed = np.arange(100_001, dtype=np.uint8)
    fixed.flags.writeable = False
    free = np.arange(100_001, dtype=np.float64)
    program = Program.pack(lambda index, count: Mapped(1, lambda n: (fixed, free)))
    iterator: Any = load(program.sizes, content(program))(0, 1)
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
    iterator: Any = load(program.sizes, content(program))(0, 1)
    assert iterator.function(0) == 10_000_000


def test_what_cannot_be_pickled_raises_the_original_error_with_a_note() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle") as error:
        Program.pack(lambda index, count: Mapped(1, lambda n: lock))
    assert "has to be picklable" in error.value.__notes__[0]


def writes_to_its_source() -> list[Any]:
    table = np.zeros((100, 1000))

    def change(number: int) -> Any:
        table[number] += 1
        return table.sum(axis=1)

    return [list(remote(3, change)) for _ in range(2)]


def test_a_worker_may_write_to_arrays_of_its_program_and_only_it_sees_that() -> None:
    for results in writes_to_its_source():
        np.testing.assert_array_equal(results[2][:4], [1000, 1000, 1000, 0])


def test_where_processes_cannot_be_written_to_memory_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("not here")

    launcher.close_launcher()
    monkeypatch.setattr(launcher, "write_to_process", refuse)
    try:
        for results in writes_to_its_source():
            np.testing.assert_array_equal(results[2][:4], [1000, 1000, 1000, 0])
    finally:
        launcher.close_launcher()


def private_bytes(memory: str) -> int:
    return sum(
        int(line.split()[1]) * 1024 for line in memory.splitlines() if line.startswith("Private")
    )


def test_all_workers_share_one_copy_of_the_arrays() -> None:
    table = np.ones(64 << 20, np.uint8)

    def measure(number: int) -> tuple[int, str]:
        total = int(table[:: mmap.PAGESIZE].sum())
        with open("/proc/self/smaps_rollup") as file:
            return total, file.read()

    program = Program.pack(lambda index, count: Mapped(1, measure))
    iterators: list[Any] = []
    for index in range(3):
        from wholegrain._engine.remote import RemoteIterator

        iterators.append(RemoteIterator(program, index, 3, buffer_size=1, initial_state=None))
        iterators[-1].start_prefetch()
    for iterator in iterators:
        total, memory = next(iterator)
        assert total == (64 << 20) // mmap.PAGESIZE
        assert private_bytes(memory) < 48 << 20
