"""However a program ends, its workers end with it, quietly."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.processes import SOURCE, descendants, run_python, wait_until, wait_until_gone

# Without a main guard, and with everything defined in the script itself.
SCRIPT = """
import os, sys, threading, time
import numpy as np
from wholegrain._workers.program import Program
from wholegrain._workers.remote import RemoteIterator

class Element:
    def __init__(self, number):
        self.number = number
    def __eq__(self, other):
        return type(other) is Element and self.number == other.number

class ScriptError(Exception):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b

class Iterator:
    def __init__(self, function, length):
        self.function, self.length, self.next_index = function, length, 0
    def __next__(self):
        if self.next_index >= self.length:
            raise StopIteration
        self.next_index += 1
        return self.function(self.next_index - 1)
    def get_state(self):
        return {"next_index": self.next_index}
    def set_state(self, state):
        self.next_index = state["next_index"]

def remote(function, length=1000):
    program = Program.pack(lambda index, count: Iterator(function, length))
    return RemoteIterator(program, 0, 1, buffer_size=1, initial_state={"next_index": 0})

def array(number):
    return np.full(100_000, number)
"""


def script(body: str) -> str:
    return SCRIPT + textwrap.dedent(body)


_started: list["subprocess.Popen[str]"] = []


@pytest.fixture(autouse=True)
def _leave_nothing_running() -> Iterator[None]:
    """Kill the scripts of a test that failed."""
    yield
    for process in _started:
        if process.poll() is None:
            process.kill()
            process.communicate()
    _started.clear()


def start(body: str) -> "subprocess.Popen[str]":
    """Start a script; return when it has printed a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", script(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    _started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


BY_VALUE = """
    elements = list(remote(Element, 5))
    assert elements == [Element(number) for number in range(5)], elements
    assert all(type(element) is Element for element in elements)

    def fail(number):
        raise ScriptError("a", number)

    iterator = remote(fail, 5)
    for number in range(5):
        try:
            next(iterator)
        except ScriptError as error:
            assert error.args == ("a",) and error.b == number
        else:
            raise AssertionError
    print("fine")
"""


@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_classes_and_functions_of_the_script_work(how: str, tmp_path: Path) -> None:
    if how == "file":
        path = tmp_path / "main.py"
        path.write_text(script(BY_VALUE))
        result = run_python(str(path))
    elif how == "-c":
        result = run_python("-c", script(BY_VALUE))
    else:
        result = run_python("-", stdin=script(BY_VALUE))
    assert (result.stdout, result.stderr, result.returncode) == ("fine\n", "", 0)


SLEEPING = "iterator = remote(lambda n: time.sleep(1000)); iterator.start_prefetch()"
WAITING_THREAD = """
    iterator = remote(lambda n: time.sleep(1000))
    threading.Thread(target=next, args=(iterator,), daemon=True).start()
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("iterator = remote(array); next(iterator)", 0),
        ("iterator = remote(array); kept = next(iterator); iterator.close()", 0),
        ("kept = [next(remote(array)) for _ in range(3)]", 0),
        ("for element in remote(array): break", 0),
        (SLEEPING, 0),
        ("iterator = remote(array); iterator.start_prefetch(); sys.exit(3)", 3),
        ("iterator = remote(array); next(iterator); os._exit(4)", 4),
        ("iterator = remote(array); cycle = [iterator]; cycle.append(cycle); next(iterator)", 0),
        (WAITING_THREAD, 0),
    ],
)
def test_leaving_is_quiet_and_complete(body: str, code: int) -> None:
    # `run_python` waits for the end of the output, which every process of the script holds open.
    result = run_python("-X", "dev", "-c", script(body))
    assert (result.stdout, result.stderr, result.returncode) == ("", "", code)


@pytest.mark.parametrize(
    "body", ["iterator = remote(array); next(iterator)", SLEEPING, WAITING_THREAD]
)
def test_leaving_is_quiet_and_complete_without_a_fork_server(body: str) -> None:
    environ = {"WHOLEGRAIN_WORKER_START": "spawn"}
    result = run_python("-X", "dev", "-c", script(body), environ=environ)
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def test_an_exception_in_the_loop_ends_the_workers() -> None:
    result = run_python("-c", script("for element in remote(array): raise ValueError('stop')"))
    assert result.returncode == 1
    assert result.stderr.endswith("ValueError: stop\n")
    assert result.stderr.count("Traceback") == 1


def test_what_workers_print_is_not_lost() -> None:
    body = """
    def talk(number):
        print("worker says", number)
        return number

    print(list(remote(talk, 3)), flush=True)
    """
    result = run_python("-c", script(body))
    assert sorted(result.stdout.splitlines()) == ["[0, 1, 2]"] + [
        f"worker says {number}" for number in range(3)
    ]


LOOP = """
    iterators = [remote(array, 10**9) for _ in range(2)]
    for iterator in iterators:
        next(iterator)
    try:
        print("ready", flush=True)
        while True:
            for iterator in iterators:
                next(iterator)
    except KeyboardInterrupt:
        time.sleep(0.2)
        print([bool((next(iterator) >= 0).all()) for iterator in iterators], flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_program_is_killed_its_workers_end(number: signal.Signals) -> None:
    process = start(LOOP)
    pids = descendants(process.pid)
    assert len(pids) == 3
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    wait_until_gone(pids)
    assert errors == ""


def test_busy_workers_end_with_a_killed_program() -> None:
    process = start(
        """
        def busy(number):
            if number:
                sum(range(10**12))
            return number

        iterator = remote(busy)
        next(iterator)
        print("ready", flush=True)
        time.sleep(1000)
        """
    )
    pids = descendants(process.pid)
    assert len(pids) == 2
    process.kill()
    process.communicate(timeout=20)
    wait_until_gone(pids)


def test_a_forked_child_does_not_keep_workers_alive() -> None:
    process = start(
        """
        iterator = remote(array)
        next(iterator)
        if os.fork() == 0:
            os.close(1), os.close(2)
            time.sleep(5)
            os._exit(0)
        print("ready", flush=True)
        time.sleep(1000)
        """
    )
    everyone = descendants(process.pid)
    assert len(everyone) == 3
    [forked] = [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if "fork_server" not in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    process.kill()
    process.communicate(timeout=20)
    wait_until_gone(everyone - {forked})
    os.kill(forked, signal.SIGKILL)


def test_ctrl_c_reaches_only_the_program_and_the_stream_goes_on() -> None:
    process = start(LOOP)
    pids = descendants(process.pid)
    os.kill(process.pid, signal.SIGINT)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # It may have ended by itself.
            os.kill(pid, signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert (output, errors, process.returncode) == ("[True, True]\n", "", 0)
    wait_until_gone(pids)


def test_programs_with_threads_can_start_workers_from_any_of_them() -> None:
    body = """
    lock = threading.Lock()
    stop = []

    def hold_the_lock():
        while not stop:
            with lock:
                sum(range(1000))

    holder = threading.Thread(target=hold_the_lock)
    holder.start()
    results = []

    def read():
        # The thread that starts the fork server ends; the fork server does not.
        results.append(sum(int(element[0]) for element in remote(array, 20)))

    for _ in range(2):
        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stop.append(1)
    holder.join()
    print(results)
    """
    result = run_python("-c", script(body))
    assert (result.stdout, result.stderr) == (f"{[190] * 6}\n", "")


def test_iterators_left_early_leave_nothing(tmp_path: Path) -> None:
    body = """
    import json, gc
    def look():
        gc.collect()
        children = []
        for task in os.listdir("/proc/self/task"):
            children += open(f"/proc/self/task/{task}/children").read().split()
        server = [open(f"/proc/{pid}/task/{pid}/children").read().split() for pid in children]
        memory = int(open("/proc/self/statm").read().split()[1])
        files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in ["self", *children]]
        return files, threading.active_count(), len(sum(server, [])), memory

    def leave(number):
        iterator = remote([array, int, Element][number % 3])
        for _ in range(number % 4):
            next(iterator)
        if number % 5 == 0:
            iterator.close()

    for number in range(20):
        leave(number)
    time.sleep(1)
    before = look()
    for number in range(200):
        leave(number)
    deadline = time.monotonic() + 10
    while look()[2] and time.monotonic() < deadline:
        time.sleep(0.02)
    print(json.dumps([before, look()]))
    """
    result = run_python("-c", script(body))
    assert result.stderr == ""
    before, after = json.loads(result.stdout)
    assert after[:3] == before[:3]
    assert after[2] == 0
    assert after[3] - before[3] < 2000  # Pages, of 4 KiB.


def test_works_without_dev_shm() -> None:
    if os.geteuid() != 0:
        pytest.skip("Only root can mount.")
    command = [
        *("unshare", "--mount", "sh", "-c"),
        'mount -t tmpfs -o size=4k none /dev/shm && exec "$@"',
        "sh",
        sys.executable,
        "-c",
        script("print(sum(int(element[0]) for element in remote(array, 50)))"),
    ]
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=60, check=False
    )
    if "unshare" in result.stderr or "mount" in result.stderr:
        pytest.skip("Mounting is not allowed here.")
    assert (result.stdout, result.stderr) == ("1225\n", "")


def test_the_fork_server_ends_when_nothing_else_would_tell_it() -> None:
    process = start(
        """
        iterator = remote(array)
        next(iterator)
        print("ready", flush=True)
        time.sleep(1000)
        """
    )
    pids = descendants(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: len(descendants(process.pid)) == len(pids))
    process.kill()
    process.communicate(timeout=20)
    wait_until_gone(pids)
