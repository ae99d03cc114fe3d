"""What the processes of a program meet: signals, limits, deaths, other users."""

import contextlib
import itertools
import logging
import os
import resource
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.workers.iterators import batch, remote
from tests.workers.processes import run_python, wait_until
from wholegrain._workers import client
from wholegrain._workers.local import launcher

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs the fork server")

R = wg.MapDataset.range


def loaded(
    length: int, function: Callable[[int], Any], workers: Any = 1
) -> wg.DatasetIterator[Any]:
    ds = R(length).map(function).to_iter_dataset()
    return iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers)))


def slowly(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def server_pid() -> int:
    current: Any = launcher.get_launcher()
    pid: int = current.server_pid
    return pid


@pytest.fixture
def own_server() -> Iterator[None]:
    """Let the test have a fork server that no other test uses."""
    launcher.close_launchers()
    yield
    launcher.close_launchers()


@pytest.mark.parametrize("workers", [1, "auto"])
@pytest.mark.parametrize("stopped", ["worker", "starter"])
def test_a_process_that_was_stopped_is_named(
    workers: Any,
    stopped: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    own_server: None,
) -> None:
    monkeypatch.setattr(client, "QUIET_S", 0.05)
    it = loaded(500, lambda number: np.full(100_000, os.getpid()), workers)
    pid = server_pid() if stopped == "starter" else int(next(it)[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        # As many as there can be, until the worker has to be waited for.
        consumer = threading.Thread(target=lambda: [next(it) for _ in range(100)])
        consumer.start()
        wait_until(lambda: f"(process {pid}) has sent nothing" in caplog.text)
        assert "T (stopped by a signal)" in caplog.text
        assert f"kill -CONT {pid}" in caplog.text
    finally:
        os.kill(pid, signal.SIGCONT)
        consumer.join()
        it.close()


def test_a_death_is_noticed_where_its_signal_is_blocked(own_server: None, tmp_path: Path) -> None:
    def dies_once(number: int) -> int:
        if number == 20 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(3)
        return number

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        assert list(loaded(40, dies_once, 2)) == list(range(40))
        assert list(loaded(1, lambda _: sorted(signal.pthread_sigmask(0, ())))) == [[]]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@pytest.mark.parametrize("workers", [2, "auto"])
def test_one_death_of_the_starter_is_not_two_deaths_of_a_worker(
    workers: Any, own_server: None
) -> None:
    table = np.ones(2_000_000)  # It takes a while until all memory is returned.
    for _ in range(5):
        it = loaded(20, lambda number: slowly(number, 0.01) + 0 * len(table), workers)
        got = [next(it)]
        killer = threading.Timer(0.02, os.kill, (server_pid(), signal.SIGKILL))
        killer.start()
        got += list(it)
        killer.join()
        assert got == list(range(20))
        it.close()


def test_where_the_starter_has_no_descriptors_left_that_is_said(own_server: None) -> None:
    first = loaded(40, lambda number: number)
    assert next(first) == 0
    pid = server_pid()
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, most))
    second = loaded(40, lambda number: number)
    with pytest.raises(OSError, match=r"Too many open files: .* which starts workers"):
        next(second)
    assert list(first) == list(range(1, 40))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
    assert list(second) == list(range(40))


def test_workers_have_the_limits_of_the_main_process(own_server: None) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert list(loaded(1, lambda _: resource.getrlimit(resource.RLIMIT_NOFILE))) == [limits]


@pytest.mark.parametrize("workers", [1, 2, "auto"])
def test_elements_go_on_in_order_when_descriptors_come_back(workers: Any) -> None:
    it = loaded(200, lambda number: np.full(3000 + 1000 * (number % 40), number), workers)
    got = [int(next(it)[0])]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    failures = 0
    while len(got) < 200:
        files: list[int] = []
        try:
            with contextlib.suppress(OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
                while True:
                    files.append(os.open(os.devnull, os.O_RDONLY))
            for _ in range(30):
                element = next(it)
                got.append(int(element[0]))
        except OSError as error:
            failures += "Too many open files" in str(error)
        except StopIteration:
            break
        finally:
            for file in files:
                os.close(file)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with contextlib.suppress(StopIteration):
            got.append(int(next(it)[0]))
    assert got == list(range(200))
    assert failures
    it.close()


@pytest.mark.parametrize("workers", [2, "auto"])
def test_elements_go_on_in_order_when_workers_cannot_be_started_again(workers: Any) -> None:
    it = loaded(120, lambda number: np.full(3000 + 1000 * (number % 40), number), workers)
    got = [int(next(it)[0])]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    failures = 0
    for _ in range(20):
        files: list[int] = []
        # Too few for another worker, also after those below are closed.
        few = len(os.listdir("/proc/self/fd")) + 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    files.append(os.open(os.devnull, os.O_RDONLY))
            got.extend(int(element[0]) for element in itertools.islice(it, 10))
        except OSError:
            failures += 1
        finally:
            for file in files:
                os.close(file)
            with contextlib.suppress(OSError, StopIteration):
                got.append(int(next(it)[0]))
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    got += [int(element[0]) for element in it]
    assert got == list(range(120))
    assert failures
    it.close()


def test_workers_are_started_as_the_user_that_the_program_is() -> None:
    if os.geteuid() != 0:
        pytest.skip("Only root can be somebody else.")
    script = """
import os
import wholegrain as wg

def users(length):
    ds = wg.MapDataset.range(length).map(lambda _: (os.getresuid(), os.getgroups()))
    return iter(ds.to_iter_dataset().mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))

before = users(5000)
assert next(before) == ((0, 0, 0), os.getgroups())
os.setgroups([12345])
assert list(users(2)) == [((0, 0, 0), [12345])] * 2
os.setresuid(65534, 65534, 65534)
if os.access(os.__file__, os.R_OK) and os.access(wg.__file__, os.R_OK):
    assert list(users(2)) == [((65534,) * 3, [12345])] * 2
assert len(list(before)) == 4999  # They go on as they were.
print("fine")
"""
    result = run_python("-c", script)
    assert (result.stdout, result.stderr, result.returncode) == ("fine\n", "", 0)


def test_a_time_out_that_is_an_os_error_is_not_the_death_of_a_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    iterator = remote(30, lambda number: batch(slowly(number, 0.03)))

    def ring(*_: Any) -> None:
        raise TimeoutError("too slow")

    previous = signal.signal(signal.SIGALRM, ring)
    got = interrupted = 0
    try:
        while got < 30:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                np.testing.assert_equal(next(iterator), batch(got))
                got += 1
            except TimeoutError:
                interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                np.testing.assert_equal(next(iterator), batch(got))
                got += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interrupted
    assert "ended unexpectedly" not in caplog.text


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="has no fork server")
def test_workers_that_die_together_while_they_start_are_replaced() -> None:
    code = """
        import os
        import wholegrain as wg
        from wholegrain._workers.local import launcher
        options = wg.MultiprocessingOptions(num_workers="auto", max_workers=8)
        it = iter(wg.MapDataset.range(2000).to_iter_dataset().mp_prefetch(options))
        wg.multiprocessing.set_worker_count(it, 6)
        it.start_prefetch()
        os.kill(launcher._current["fork"].server_pid, 9)
        print(list(it) == list(range(2000)))
    """
    result = run_python("-c", textwrap.dedent(code))
    assert (result.stdout, result.returncode) == ("True\n", 0), result.stderr
