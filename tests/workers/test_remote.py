import collections
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.iterators import Mapped, Nested, Reporting, Stacked, batch, remote
from tests.workers.processes import is_running, open_descriptors, wait_until, wait_until_gone
from wholegrain._workers.local import launcher
from wholegrain._workers.program import Program
from wholegrain._workers.remote import RemoteIterator


@pytest.fixture(
    params=[
        pytest.param({}, id="fork"),
        pytest.param(
            {"WHOLEGRAIN_WORKER_START": "spawn", "WHOLEGRAIN_SHARED_MEMORY": "named"}, id="spawn"
        ),
        pytest.param(
            {"WHOLEGRAIN_WORKER_START": "spawn", "WHOLEGRAIN_SHARED_MEMORY": "unlinked"},
            id="spawn-unlinked",
        ),
    ]
)
def start_method(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """Every way of starting workers that some system needs."""
    if request.param:
        launcher.close_launchers()
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)
    yield request.param
    if request.param:
        launcher.close_launchers()


def assert_batches(batches: list[Any], numbers: range) -> None:
    assert len(batches) == len(numbers)
    for received, number in zip(batches, numbers, strict=True):
        expected = batch(number)
        assert list(received) == list(expected)
        np.testing.assert_array_equal(received["x"], expected["x"])
        np.testing.assert_array_equal(received["y"], expected["y"])
        assert received["n"] == number


def test_yields_what_the_iterator_yields(start_method: dict[str, str]) -> None:
    assert list(remote(1000)) == list(range(1000))
    assert_batches(list(remote(20, batch)), range(20))


def test_large_arrays_of_the_program_reach_the_worker(start_method: dict[str, str]) -> None:
    table = np.arange(300_000).reshape(1000, 300)
    rows = list(remote(1000, lambda number: table[number]))
    np.testing.assert_array_equal(np.stack(rows), table)


def test_a_dead_worker_is_replaced(
    start_method: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    iterator = remote(200, batch)  # More than the worker makes ahead.
    batches = [next(iterator) for _ in range(10)]
    assert iterator.worker_pid is not None
    os.kill(iterator.worker_pid, 9)
    batches += iterator
    assert_batches(batches, range(200))
    assert "exit code -9 (SIGKILL" in caplog.text


def test_the_worker_ends_with_the_iterator(start_method: dict[str, str]) -> None:
    iterator = remote(40, batch)
    next(iterator)
    pid = iterator.worker_pid
    assert pid is not None
    assert is_running(pid)
    del iterator
    wait_until_gone([pid])


def test_the_worker_ends_with_an_owner_that_knows_the_initial_state() -> None:
    class Owner:
        def __init__(self) -> None:
            program = Program.pack(lambda index, count: Mapped(9, batch))
            self.iterator: RemoteIterator[Any] = RemoteIterator(
                program, 0, 1, buffer_size=1, initial_state=self.initial_state
            )

        def initial_state(self) -> Any:
            return {"next_index": 0}

    gc.disable()
    try:
        owner = Owner()
        assert owner.iterator.get_state() == {"next_index": 0}
        next(owner.iterator)
        pid = owner.iterator.worker_pid
        assert pid is not None
        del owner
        wait_until_gone([pid])
    finally:
        gc.enable()


def test_nothing_stays_in_dev_shm(start_method: dict[str, str]) -> None:
    before = set(Path("/dev/shm").glob("wholegrain*"))
    table = np.zeros(1_000_000)
    iterator = remote(40, lambda number: table + number)
    list(iterator)
    iterator.close()
    del iterator
    gc.collect()
    wait_until(lambda: set(Path("/dev/shm").glob("wholegrain*")) <= before)


def test_starts_nothing_before_the_first_element() -> None:
    iterator = remote(3)
    assert iterator.get_state() == {"next_index": 0}
    iterator.set_state({"next_index": 1})
    assert iterator.get_state() == {"next_index": 1}
    assert iterator.worker_pid is None
    assert list(iterator) == [1, 2]


def test_start_prefetch_runs_ahead(tmp_path: Path) -> None:
    def mark(number: int) -> int:
        (tmp_path / str(number)).touch()
        return number

    iterator = remote(100, mark)
    iterator.start_prefetch()
    wait_until(lambda: (tmp_path / "2").exists())
    assert list(iterator) == list(range(100))


def test_runs_ahead_of_large_elements_only_so_far(tmp_path: Path) -> None:
    def mark(number: int) -> Any:
        (tmp_path / str(number)).touch()
        return np.zeros(3 << 20, np.uint8)

    iterator = remote(1000, mark, buffer_size=2)
    for taken in (1, 2, 5):
        while len(list(tmp_path.iterdir())) < taken:
            next(iterator)
    time.sleep(0.3)
    made = len(list(tmp_path.iterdir()))
    assert made <= 5 + 2 * 2 + 2


@pytest.mark.parametrize("nbytes", [1, 1 << 10, 20_000, 100_000, 500_000, 700_000, 3 << 20])
def test_a_worker_that_stood_still_goes_on(nbytes: int, tmp_path: Path) -> None:
    last = tmp_path / "last"

    def fill(number: int) -> Any:
        last.write_text(str(number))
        return np.full(nbytes, number % 251, np.uint8)

    count = min(3000, 8 + (12 << 20) // nbytes)
    iterator = remote(count, fill)
    for number in range(count):
        if number in (1, count // 2):
            before = -1
            while (now := int(last.read_text() or 0)) != before:  # It is as far ahead as it may.
                before = now
                time.sleep(0.05)
        element = next(iterator)
        assert element.shape == (nbytes,)
        assert element[0] == element[-1] == number % 251
    iterator.close()


def test_the_end_repeats_and_a_state_leads_back() -> None:
    iterator = remote(5)
    assert list(iterator) == [0, 1, 2, 3, 4]
    pid = iterator.worker_pid
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)
    assert iterator.get_state() == {"next_index": 5}
    iterator.set_state({"next_index": 3})
    assert list(iterator) == [3, 4]
    assert iterator.worker_pid == pid


@pytest.mark.parametrize("kind", [Mapped, Nested, Stacked])
def test_states_are_those_of_the_last_element(kind: type[Mapped]) -> None:
    iterator = remote(300, kind=kind)
    local = kind(300, int)
    assert iterator.get_state() == local.get_state()
    for _ in range(300):
        next(iterator)
        Mapped.__next__(local)
        assert iterator.get_state() == local.get_state()
    with pytest.raises(StopIteration):
        next(iterator)
    assert iterator.get_state() == local.get_state()


@settings(max_examples=20)
@given(
    st.sampled_from([Mapped, Nested]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=5),
)
def test_any_walk_by_states_gives_the_same_elements(
    kind: type[Mapped], arrays: bool, walk: list[tuple[int, int]]
) -> None:
    function = (lambda n: np.full(5000, n)) if arrays else (lambda n: n)
    iterator = remote(50, function, kind)
    local = kind(50, function)
    for position, steps in walk:
        local.next_index = position
        iterator.set_state(local.get_state())
        for _ in range(steps):
            np.testing.assert_equal(next(iterator, None), next(local, None))
            assert iterator.get_state() == local.get_state()


def test_batches_are_written_where_they_are_read() -> None:
    for number, element in enumerate(remote(30, kind=Stacked)):
        assert (element["image"] == number).all()
        assert (element["again"] == number).all()
        assert (element["label"] == number).all()
        assert (element["mask"] == number % 2).all()
        assert (element["extra"] == number).all()
        element["image"][:] = -1
        assert (element["again"] == number).all()


def test_elements_are_the_callers_to_write_to_and_to_keep() -> None:
    kept = []
    for number, element in enumerate(remote(50, batch)):
        element["x"] += 1
        kept.append(element["x"][5:][3:7])
        if number % 3:
            kept[-1] = None
    for number, rows in enumerate(kept):
        assert rows is None or (rows == number + 1).all()


def test_elements_outlive_the_iterator() -> None:
    iterator = remote(50, batch)
    kept = [next(iterator) for _ in range(5)]
    iterator.close()
    del iterator
    gc.collect()
    assert_batches(kept, range(5))


def test_a_caller_who_keeps_everything_gets_everything() -> None:
    kept = list(remote(300, lambda n: np.full(100_000, n, np.int16), hold_budget=1 << 20))
    for number, array in enumerate(kept):
        assert (array == number).all()
        assert array.flags.writeable


def test_memory_is_used_again_while_elements_are_let_go() -> None:
    addresses = {
        array.__array_interface__["data"][0]
        for array in remote(200, lambda n: np.full(1 << 20, n, np.uint8))
    }
    assert len(addresses) <= 10


def test_elements_of_any_kind_in_any_order() -> None:
    def mixed(number: int) -> Any:
        kinds: list[Any] = [
            number,
            str(number),
            None,
            np.arange(number),
            {"a": number},
            b"x" * number * 100,
            np.full(number * 1000, number),
            (number, [number]),
            2.5,
            {number: np.float32(number)},
        ]
        return kinds[number % len(kinds)]

    for number, element in enumerate(remote(200, mixed)):
        expected = mixed(number)
        assert type(element) is type(expected)
        np.testing.assert_equal(element, expected)


def test_an_element_that_the_iterator_changes_later_arrives_as_it_was() -> None:
    shared: dict[str, Any] = {"list": [0], "array": np.zeros(4)}

    def change(number: int) -> Any:
        shared["list"][0] = number
        shared["array"][:] = number
        return shared

    for number, element in enumerate(remote(500, change)):
        assert element["list"] == [number]
        assert (element["array"] == number).all()


def test_a_finished_element_does_not_wait_for_a_slow_one(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait_at_100(number: int) -> int:
        if number == 100:
            while not gate.exists():
                time.sleep(0.01)
        return number

    iterator = remote(200, wait_at_100)
    assert [next(iterator) for _ in range(100)] == list(range(100))
    gate.touch()
    assert list(iterator) == list(range(100, 200))


def test_close_ends_a_busy_worker(tmp_path: Path) -> None:
    def slow(number: int) -> int:
        (tmp_path / "started").touch()
        time.sleep(1000)
        return number

    iterator = remote(10, slow)
    iterator.start_prefetch()
    wait_until(lambda: (tmp_path / "started").exists())
    connection = iterator._connection
    assert connection is not None
    while connection.worker_pid is None:
        connection.receive_arrived()
    iterator.close()
    wait_until_gone([connection.worker_pid])


def test_a_closed_iterator_says_so() -> None:
    iterator = remote(10)
    next(iterator)
    iterator.close()
    iterator.close()
    with pytest.raises(ValueError, match="Trying to advance a closed iterator"):
        next(iterator)
    with pytest.raises(ValueError, match="Trying to advance a closed iterator"):
        iterator.start_prefetch()
    assert iterator.get_state() == {"next_index": 1}


def test_close_from_another_thread_wakes_the_one_that_waits(tmp_path: Path) -> None:
    iterator = remote(10, lambda number: time.sleep(1000))
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            next(iterator)
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    iterator.start_prefetch()
    thread.start()
    time.sleep(0.1)
    iterator.close()
    thread.join(20)
    assert "closed iterator" in str(errors[0])


def test_worker_init_fn_comes_first() -> None:
    def init(index: int, count: int) -> None:
        os.environ["WORKER"] = f"{index}/{count}"

    def factory(index: int, count: int) -> Mapped:
        name = os.environ["WORKER"]
        return Mapped(2, lambda number: f"{name} {number}")

    iterator: RemoteIterator[str] = RemoteIterator(
        Program.pack(factory), 2, 5, buffer_size=1, initial_state=None, worker_init_fn=init
    )
    assert list(iterator) == ["2/5 0", "2/5 1"]


def test_workers_see_the_environment_but_no_accelerator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_SETTING", "seven")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    names = ["SOME_SETTING", "JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"]
    [seen] = remote(1, lambda _: [os.environ.get(name) for name in names])
    assert seen == ["seven", "cpu", ""]
    monkeypatch.setenv("WHOLEGRAIN_WORKER_DEVICES", "1")
    [seen] = remote(1, lambda _: [os.environ.get(name) for name in names])
    assert seen == ["seven", None, "0,1"]
    assert "can see the accelerators" in caplog.text


def test_settings_of_the_processes_that_workers_come_from_end_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    launcher.close_launchers()
    [seen] = remote(1, lambda _: [os.environ.get(name) for name in names])
    assert seen == [None, None]


def test_workers_run_where_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(remote(1, lambda _: os.getcwd())) == [str(tmp_path)]


def test_workers_draw_different_random_numbers() -> None:
    drawn = [next(remote(1, lambda _: float(np.random.random()))) for _ in range(3)]
    assert len(set(drawn)) == 3


def test_several_workers_run_at_once() -> None:
    program = Program.pack(lambda index, count: Mapped(50, lambda n: n * count + index))
    workers: list[RemoteIterator[int]] = [
        RemoteIterator(program, index, 3, buffer_size=1, initial_state={"next_index": 0})
        for index in range(3)
    ]
    for worker in workers:
        worker.start_prefetch()
    assert [next(workers[n % 3]) for n in range(150)] == list(range(150))


def test_nothing_is_left_behind() -> None:
    list(remote(5, batch))
    gc.collect()
    descriptors, threads = open_descriptors(), threading.active_count()
    for number in range(20):
        iterator = remote(100, batch)
        for _ in range(number % 4):
            next(iterator)
        if number % 2:
            iterator.close()
    del iterator
    gc.collect()
    assert open_descriptors() <= descriptors
    assert threading.active_count() <= threads


def test_elements_of_classes_that_only_the_worker_has_arrive() -> None:
    def make(number: int) -> Any:
        kind = type("Made", (), {"double": lambda self: 2 * number})
        return kind() if number % 2 else [kind, number]

    received = list(remote(6, make))
    assert [element.double() for element in received[1::2]] == [2, 6, 10]
    assert [element[0]().double() for element in received[::2]] == [0, 4, 8]


def test_reports_of_the_iterator_reach_the_main_process() -> None:
    iterator = remote(100, kind=Reporting)
    assert not iterator.report
    collections.deque(iterator, 0)
    assert iterator.report == {"made": 100}
    iterator.close()
    assert iterator.report == {"made": 100}


def test_the_process_that_is_forked_has_one_thread() -> None:
    list(remote(1))
    server: Any = launcher.get_launcher()
    assert len(os.listdir(f"/proc/{server._process.pid}/task")) == 1


def test_arrays_keep_the_order_of_their_memory() -> None:
    def turned(number: int) -> dict[str, Any]:
        return {
            "small": np.asfortranarray(np.full((3, 4), number)),
            "large": np.asfortranarray(np.arange(90_000).reshape(300, 300) + number),
            "plain": np.full((200, 200), number),
            "flipped": np.arange(20_000)[::-1],
        }

    for number, element in enumerate(remote(3, turned)):
        np.testing.assert_equal(element, turned(number))
        assert [array.flags.fnc for array in element.values()] == [True, True, False, False]
        assert all(array.flags.writeable for array in element.values())
