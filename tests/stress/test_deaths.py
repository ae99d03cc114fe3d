"""Workers that die at any point, and elements that kill them."""

import collections
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.iterators import (
    Mapped,
    Nested,
    Stacked,
    batch,
    identity,
    large,
    remote,
    tiny_dict,
)
from tests.workers.processes import is_running, wait_until_gone
from wholegrain._read.controller import Controller
from wholegrain._workers.backend import Backend, WorkerExit, WorkerHandle, WorkerSpec
from wholegrain._workers.local import launcher
from wholegrain._workers.pool import Span, WorkerPool
from wholegrain._workers.program import Program
from wholegrain._workers.remote import RemoteIterator


def assert_equal(left: Any, right: Any) -> None:
    np.testing.assert_equal(left, right)


def kill(iterator: RemoteIterator[Any]) -> None:
    if iterator.worker_pid is not None:
        with contextlib.suppress(ProcessLookupError):  # It had not been noticed yet.
            os.kill(iterator.worker_pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "function", "length", "kills"),
    [
        (Mapped, identity, 50_000, 20),
        (Nested, tiny_dict, 20_000, 20),
        (Mapped, batch, 1000, 20),
        (Mapped, large, 300, 40),
        (Stacked, identity, 1000, 20),
    ],
)
def test_the_stream_is_the_same_however_often_workers_are_killed(
    kind: type[Mapped], function: Callable[[int], Any], length: int, kills: int
) -> None:
    chance = random.Random(length)
    local: Any = kind(length, function)
    iterator = remote(length, function, kind)
    next_kill = 1
    for number in range(length):
        element = next(iterator)
        if function is large:
            assert np.array_equal(element, next(local))
        elif kind is Stacked:
            assert (element["image"] == number).all()
            assert (element["extra"] == number).all()
            Mapped.__next__(local)
        else:
            assert_equal(element, next(local))
        assert iterator.get_state() == local.get_state()
        pid = iterator.worker_pid
        if kills and number >= next_kill and pid is not None and is_running(pid):
            time.sleep(chance.choice([0, 0, 0.0005, 0.002]))
            os.kill(pid, signal.SIGKILL)
            wait_until_gone([pid])
            kills -= 1
            next_kill = number + chance.randrange(1, 4)
    assert next(iterator, None) is None
    assert not kills


def test_a_restored_stream_is_the_same_when_workers_are_killed() -> None:
    chance = random.Random(7)
    iterator = remote(100, batch)
    for _ in range(10):
        position = chance.randrange(90)
        iterator.set_state({"next_index": position})
        if chance.random() < 0.7:
            kill(iterator)
        for number in range(position, position + chance.randrange(10)):
            assert_equal(next(iterator), batch(number))


def test_elements_received_before_a_death_stay_valid() -> None:
    iterator = remote(60, batch)
    kept = []
    for number in range(60):
        kept.append(next(iterator))
        if number % 20 == 10:
            kill(iterator)
    for number, element in enumerate(kept):
        assert_equal(element, batch(number))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("os.kill(os.getpid(), 9)", r"exit code -9 \(SIGKILL: killed from outside"),
        ("os.kill(os.getpid(), 11)", r"exit code -11 \(SIGSEGV: a crash in native code\)"),
        ("sys.exit(3)", "exit code 3"),
        ("sys.exit()", "exit code 0"),
        ("os._exit(4)", "exit code 4"),
        ("raise KeyboardInterrupt", "exit code 1"),
    ],
)
def test_an_element_that_kills_its_worker_twice_is_named(how: str, expected: str) -> None:
    def deadly(number: int) -> int:
        if number == 1500:
            exec(f"import os, sys; {how}")
        return number

    iterator = remote(2000, deadly, index=1, count=4)
    with pytest.raises(RuntimeError, match="Worker process was terminated unexpectedly") as error:
        collections.deque(iterator, 0)
    error.match(expected)
    assert error.value.__suppress_context__  # How it was noticed is nobody's business.
    error.match("Worker 1 of 4 ended twice while making the same element: its element 1500")
    error.match(r"after the state \{'next_index': 1500\}")
    assert iterator.get_state() == {"next_index": 1500}
    iterator.set_state({"next_index": 1501})
    assert list(iterator) == list(range(1501, 2000))


def test_a_crash_in_native_code_shows_where_python_was() -> None:
    def crash(number: int) -> int:
        import ctypes

        return ctypes.string_at(0)  # type: ignore[return-value]

    with pytest.raises(RuntimeError, match="in crash"):
        next(remote(1, crash))


def test_a_worker_that_dies_once_goes_unnoticed(tmp_path: Any) -> None:
    def dies_once(number: int) -> int:
        mark = tmp_path / str(number)
        if number % 10 == 5 and not mark.exists():
            mark.touch()
            os._exit(1)
        return number

    assert list(remote(100, dies_once)) == list(range(100))


def test_the_death_of_the_fork_server_goes_unnoticed() -> None:
    iterators = [remote(100, batch) for _ in range(3)]
    received: list[list[Any]] = [[] for _ in iterators]
    for number in range(100):
        for iterator, elements in zip(iterators, received, strict=True):
            elements.append(next(iterator))
        if number % 40 == 20:
            server: Any = launcher.get_launcher()
            pids = [iterator.worker_pid for iterator in iterators]
            server._process.kill()
            wait_until_gone([pid for pid in pids if pid is not None])
    for elements in received:
        for number, element in enumerate(elements):
            assert_equal(element, batch(number))


def _count_start(path: Path) -> int:
    with path.open("ab") as file:
        file.write(b".")
    return path.stat().st_size


def test_a_replacement_that_dies_before_it_begins_is_not_held_against_the_element(
    tmp_path: Path,
) -> None:
    starts = tmp_path / "starts"

    def init(index: int, count: int) -> None:
        if _count_start(starts) in (2, 3, 4):
            os._exit(4)

    def dies_in_the_first_worker(number: int) -> int:
        if number == 7 and starts.stat().st_size == 1:
            os._exit(5)
        return number

    iterator = remote(20, dies_in_the_first_worker, worker_init_fn=init)
    assert list(iterator) == list(range(20))
    assert starts.stat().st_size == 5


def test_workers_that_never_begin_are_an_error(tmp_path: Path) -> None:
    starts = tmp_path / "starts"

    def init(index: int, count: int) -> None:
        _count_start(starts)
        os._exit(4)

    with pytest.raises(RuntimeError, match=r"exit code 4.* before it could begin"):
        next(remote(20, worker_init_fn=init))
    assert starts.stat().st_size < 10


class _Dead(WorkerHandle):
    def send(self, message: Any) -> None:
        pass

    def receive(self, timeout_s: float) -> Any:
        raise EOFError

    def exit(self) -> WorkerExit:
        return WorkerExit("exit code -9")

    def close(self) -> None:
        pass


class _DeadWorkers(Backend):
    def start(self, spec: WorkerSpec) -> WorkerHandle:
        return _Dead()

    def wait(self, handles: Any, timeout_s: float) -> Any:
        return handles


def test_a_span_is_blamed_for_the_second_worker_that_has_begun_it() -> None:
    program = Program.pack(lambda index, count: Mapped(1, identity))
    spec = WorkerSpec(program=program, index=0, count=1, buffer_size=1)
    pool = WorkerPool(lambda _: spec, Controller(2, 1 << 30, grows_room=False), _DeadWorkers())
    pool.fix(1)
    span = Span(10, 4)
    span.number = 3

    def die(begun: int | None) -> str | None:
        pool.adjust(0)
        [worker] = pool.workers
        worker.is_set_up = True
        worker.give(span, b"")
        worker.connection._begun = begun
        assert pool.bury(worker) == [span]
        return span.death

    assert die(None) is None  # The first: nothing was suspected yet.
    assert die(None) is None  # It had not begun.
    assert die(2) is None  # It had begun another one.
    assert die(3) is None  # The first that is known to have begun it.
    death = die(3)
    assert death is not None
    assert "element 10" in death


def test_a_grandchild_does_not_keep_a_dead_worker_alive() -> None:
    def leaves_a_child(number: int) -> int:
        if number == 3:
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            with open(path, "a") as file:
                file.write(f"{child} ")
            os._exit(5)
        return number

    path = f"/tmp/wholegrain-test-{os.getpid()}"
    try:
        with pytest.raises(RuntimeError, match="exit code 5"):
            list(remote(5, leaves_a_child))
    finally:
        with open(path) as file:
            for child in map(int, file.read().split()):
                os.kill(child, signal.SIGKILL)
        os.remove(path)


def test_workers_of_one_program_die_independently() -> None:
    program = Program.pack(
        lambda index, count: Mapped(200, lambda n: np.full(9000, n * count + index))
    )
    workers: list[RemoteIterator[Any]] = [
        RemoteIterator(program, index, 3, buffer_size=2, initial_state={"next_index": 0})
        for index in range(3)
    ]
    chance = random.Random(3)
    for number in range(600):
        assert (next(workers[number % 3]) == number).all()
        if chance.random() < 0.02:
            kill(workers[number % 3])
