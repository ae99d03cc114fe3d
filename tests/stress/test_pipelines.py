"""Whole pipelines with worker processes, as users write them, where much goes wrong."""

import json
import os
import random
import signal
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.workers.processes import descendants, is_running, run_python, wait_until_gone
from wholegrain._workers.local import launcher


def _element(number: int) -> Any:
    # So large that workers are only a few elements ahead.
    return {"x": np.full(2 << 20, number % 251, np.uint8), "number": number}


def _is_kept(element: Any) -> bool:
    return bool(element["number"] % 7)


def _workers() -> list[int]:
    """Return the processes of workers: those that the fork server forked."""
    server: Any = launcher.get_launcher()
    return sorted(pid for pid in descendants(server._process.pid) if is_running(pid))


@pytest.mark.parametrize(("num_workers", "kills"), [(1, 15), (3, 35)])
def test_kills_change_neither_elements_nor_states(num_workers: int, kills: int) -> None:
    # Between two deaths each worker has to get somewhere: who dies twice at an element has been
    # killed by it, as far as anyone can tell.
    apart = 6 * num_workers
    numbers = wg.MapDataset.range((kills + 2) * apart * 7 // 6).shuffle(seed=3)
    ds = numbers.map(_element).filter(_is_kept).to_iter_dataset(wg.ReadOptions(0, 0))
    dealt_out = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=num_workers))

    undisturbed = iter(dealt_out)
    expected = [(element["number"], undisturbed.get_state()) for element in undisturbed]
    undisturbed.close()
    wait_until_gone(_workers())

    chance = random.Random(num_workers)
    deaths = 0
    it = iter(dealt_out)
    for place, (number, state) in enumerate(expected):
        element = next(it)
        assert element["number"] == number
        assert (element["x"] == number % 251).all()
        assert it.get_state() == state
        if place % apart == 3 and deaths < kills:
            time.sleep(chance.choice([0, 0, 0.001, 0.003]))
            victim = chance.choice(_workers())
            os.kill(victim, signal.SIGKILL)
            wait_until_gone([victim])
            deaths += 1
    assert next(it, None) is None
    assert deaths == kills


# Without a main guard, and with everything defined in the script itself.
_SCRIPT = """
import os, sys, threading, time
import numpy as np
import wholegrain as wg

def loaded(function, length=1000, workers=2):
    ds = wg.MapDataset.range(length).map(function).to_iter_dataset()
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))
"""


def _run(body: str, path: Path | None = None) -> Any:
    code = _SCRIPT + textwrap.dedent(body)
    if path is None:
        return run_python("-c", code)
    path.write_text(code)
    return run_python(str(path))


def test_a_thousand_iterators_left_early_leave_nothing() -> None:
    result = _run(
        """
        import gc, json

        def look():
            gc.collect()
            children = []
            for task in os.listdir("/proc/self/task"):
                children += open(f"/proc/self/task/{task}/children").read().split()
            workers = [open(f"/proc/{pid}/task/{pid}/children").read() for pid in children]
            pages = int(open("/proc/self/statm").read().split()[1])
            files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in ["self", *children]]
            return files, threading.active_count(), len("".join(workers).split()), pages

        def settled():
            deadline = time.monotonic() + 20
            while look()[2] and time.monotonic() < deadline:
                time.sleep(0.02)
            return look()

        ds = loaded(lambda n: np.full(5000, n), workers=1)

        def leave(number):
            it = iter(ds)
            for _ in range(number % 3):
                next(it)
            if number % 5 == 0:
                it.close()

        for number in range(50):
            leave(number)
        before = settled()
        for number in range(1000):
            leave(number)
        print(json.dumps([before, settled()]))
        """
    )
    assert result.stderr == ""
    before, after = json.loads(result.stdout)
    assert after[:3] == before[:3]
    assert after[2] == 0
    assert after[3] - before[3] < 2500  # Pages, of 4 KiB.


@pytest.mark.parametrize("workers", ["2", "'auto'", "0"])
def test_iterators_that_outlive_the_modules_end_quietly(workers: str) -> None:
    result = _run(
        f"""
        import ctypes

        it = iter(loaded(lambda n: np.full(10_000, n), workers={workers}))
        next(it)
        # As libraries with native code do: what the script defines goes last of all.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules["__main__"]))
        """
    )
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def test_an_exception_in_the_loop_ends_everything_soon() -> None:
    result = _run(
        """
        for element in loaded(lambda n: np.full(100_000, n)):
            print(time.time(), flush=True)
            raise ValueError("stop")
        """
    )
    # It returns when the last process has ended. A second on a machine with nothing else to do.
    assert time.time() - float(result.stdout) < 10
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert result.stderr.endswith("ValueError: stop\n")


def test_what_cannot_be_pickled_is_an_error_with_its_name_and_the_rest_goes_on() -> None:
    result = _run(
        """
        import threading

        it = iter(loaded(lambda n: {"lock": threading.Lock()} if n == 3 else n, 8))
        got = []
        while True:
            try:
                got.append(next(it))
            except StopIteration:
                break
            except TypeError as error:
                assert "element['lock'] is a _thread.lock, which cannot be pickled" in str(error)
                got.append("refused")
        print(got)
        """
    )
    assert result.stderr == ""
    assert result.stdout == "[0, 1, 2, 'refused', 4, 5, 6, 7]\n"


def test_elements_of_classes_of_the_main_script_arrive_as_such(tmp_path: Path) -> None:
    result = _run(
        """
        import collections, dataclasses

        @dataclasses.dataclass
        class Sample:
            image: object
            label: int

        Pair = collections.namedtuple("Pair", "left right")

        def make(n):
            return Pair(Sample(np.full((2, 2), n), n), {"n": n})

        for number, (sample, right) in enumerate(loaded(make, 6)):
            assert type(sample) is Sample and sample.label == number, sample
            assert (sample.image == number).all() and right == {"n": number}
        print("fine")
        """,
        tmp_path / "main.py",
    )
    assert (result.stdout, result.stderr, result.returncode) == ("fine\n", "", 0)


@pytest.mark.parametrize("how", ["sys.exit(0)", "sys.exit(3)", "os._exit(5)", "os.abort()"])
def test_a_worker_that_exits_is_an_error_not_a_hang(how: str) -> None:
    result = _run(
        f"""
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def leave(n):
            if n == 4:
                {how}
            return n

        it = iter(loaded(leave, 10))
        print([next(it) for _ in range(4)])
        try:
            next(it)
        except RuntimeError as error:
            print("terminated unexpectedly" in str(error), "element 2 " in str(error))
        """
    )
    assert result.stdout == "[0, 1, 2, 3]\nTrue True\n"


def test_programs_with_an_initialised_jax_and_threads_can_start_workers() -> None:
    pytest.importorskip("jax")
    result = _run(
        """
        import jax, jax.numpy as jnp

        total = jnp.ones((256, 256)) @ jnp.ones((256, 256))  # Its threads run from here on.
        total.block_until_ready()
        lock = threading.Lock()

        def hold():
            while True:
                with lock:
                    time.sleep(0.001)

        for _ in range(4):
            threading.Thread(target=hold, daemon=True).start()

        def features(n):
            assert "jax" not in sys.modules  # Nothing of the main process is in here.
            return np.full(10_000, n, np.float32)

        found = [float(jnp.sum(jnp.asarray(element))) for element in loaded(features, 20)]
        assert found == [10_000.0 * n for n in range(20)], found
        print("fine")
        """
    )
    assert (result.stdout, result.stderr, result.returncode) == ("fine\n", "", 0)
