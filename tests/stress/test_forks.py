"""Programs that fork themselves while workers run for them."""

import os
import textwrap
from typing import Any

import pytest

from tests.workers.processes import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

_SCRIPT = """
import gc, multiprocessing, os, sys, threading, time, warnings
import numpy as np
import wholegrain as wg

warnings.simplefilter("ignore")  # Python 3.12 and later warn of forks with threads.

def array(number):
    return np.full(50_000, number)

def loaded(workers, length=300, function=array):
    ds = wg.MapDataset.range(length).map(function).to_iter_dataset()
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))

def forked(function, how):
    # Runs `function` in a forked child; returns what to call to wait for it.
    if how == "fork":
        child = os.fork()
        if child == 0:
            code = 1
            try:
                function()
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(code)
        return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    return lambda: process.join() or process.exitcode
"""

_WORKERS = ["1", "2", "'auto'"]
_HOW = ["fork", "multiprocessing"]


def _run(body: str, **values: Any) -> Any:
    settings = "".join(f"{name} = {value}\n" for name, value in values.items())
    return run_python("-c", _SCRIPT + settings + textwrap.dedent(body))


def _check(body: str, expected: str = "fine\n", **values: Any) -> None:
    result = _run(body, **values)
    assert (result.stdout, result.stderr, result.returncode) == (expected, "", 0)


@pytest.mark.parametrize("workers", _WORKERS)
@pytest.mark.parametrize("how", _HOW)
def test_what_a_forked_child_holds_never_changes(workers: str, how: str) -> None:
    _check(
        """
        it = iter(loaded(workers))
        kept = [next(it) for _ in range(5)]
        parent_is_done, child_go_on = os.pipe()

        def look():
            os.close(child_go_on)
            os.read(parent_is_done, 1)  # Returns when the parent has let go of all it had.
            for number, element in enumerate(kept):
                assert (element == number).all(), (number, element)

        wait = forked(look, how)
        del kept
        rest = [int(element[0]) for element in it]
        assert rest == list(range(5, 300)), rest
        os.close(child_go_on)
        assert wait() == 0
        print("fine")
        """,
        workers=workers,
        how=repr(how),
    )


@pytest.mark.parametrize("workers", _WORKERS)
@pytest.mark.parametrize("how", _HOW)
def test_a_forked_child_cannot_use_its_parents_iterator_and_can_make_its_own(
    workers: str, how: str
) -> None:
    _check(
        """
        ds = loaded(workers, 40, lambda number: number)
        it = iter(ds)
        first = [next(it) for _ in range(7)]

        def use():
            for _ in range(2):
                try:
                    next(it)
                except RuntimeError as error:
                    assert f"belongs to process {os.getppid()}" in str(error), error
                    assert "iter(ds)" in str(error)
                else:
                    raise AssertionError("There was no error.")
                assert it.get_state() == state
                it.set_state(state)
            new = iter(ds)
            new.set_state(it.get_state())
            assert list(new) == list(range(7, 40))
            assert list(ds) == list(range(40))

        state = it.get_state()
        wait = forked(use, how)
        assert wait() == 0
        assert first + list(it) == list(range(40))
        print("fine")
        """,
        workers=workers,
        how=repr(how),
    )


@pytest.mark.parametrize("workers", _WORKERS)
@pytest.mark.parametrize("start", ["auto", "spawn"])
@pytest.mark.parametrize("how", ["it.close()", "drop()", "sys.exit(0)", "pass"])
def test_what_a_forked_child_does_with_iterators_the_parent_does_not_notice(
    workers: str, start: str, how: str
) -> None:
    body = f"""
        import logging
        os.environ["WHOLEGRAIN_WORKER_START"] = {start!r}
        it = iter(loaded(workers, 100, lambda number: (number, os.getpid())))
        first = [next(it) for _ in range(10)]

        def drop():
            global it
            del it
            gc.collect()

        child = os.fork()
        if child == 0:
            {how}
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        rest = list(it)
        assert [number for number, _ in first + rest] == list(range(100))
        print("fine")
        """
    _check(body, workers=workers)


@pytest.mark.parametrize(
    "ahead",
    [
        "ds.to_iter_dataset(wg.ReadOptions(4, 16))",
        "X.ThreadPrefetchIterDataset(ds.to_iter_dataset(none), prefetch_buffer_size=4)",
        "X.multithread_prefetch(ds.to_iter_dataset(none), 2, 4)",
    ],
)
def test_a_forked_child_does_not_wait_for_threads_of_its_parent(ahead: str) -> None:
    _check(
        f"""
        X, none = wg.experimental, wg.ReadOptions(0, 0)

        def slowly(number):
            time.sleep(0.005)
            return number

        ds = wg.MapDataset.range(100).map(slowly)
        ds = {ahead}
        it = iter(ds)
        first = [next(it) for _ in range(20)]

        def use():
            try:
                got = [next(it) for _ in range(60)]
            except RuntimeError as error:
                assert "was forked" in str(error), error
            else:
                raise AssertionError("There was no error.")
            assert list(ds) == list(range(100))

        assert forked(use, "fork")() == 0
        assert first + list(it) == list(range(100))
        print("fine")
        """
    )


def test_a_child_that_goes_on_does_not_keep_the_workers_of_its_parent() -> None:
    _check(
        """
        it = iter(loaded(2, 100, lambda number: (number, os.getpid())))
        pids = {next(it)[1] for _ in range(4)}
        wait = forked(lambda: time.sleep(60), "fork")
        it.close()
        deadline = time.monotonic() + 20
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            assert time.monotonic() < deadline, pids
            time.sleep(0.01)
        child = int(open(f"/proc/self/task/{os.getpid()}/children").read().split()[-1])
        os.kill(child, 9)
        assert wait() == -9
        print("fine")
        """
    )


def test_memory_does_not_grow_where_a_program_forks_again_and_again() -> None:
    _check(
        """
        def shared():
            with open("/proc/self/status") as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("RssShmem"))

        it = iter(loaded(1, 2000))
        for number in range(200):
            element = next(it)
            child = os.fork()
            if child == 0:
                os._exit(int((element != number).any()))
            assert os.waitpid(child, 0)[1] == 0
            if number == 20:
                before = shared()
        assert shared() < before + 20_000, (before, shared())
        assert next(it)[0] == 200
        print("fine")
        """
    )


def test_workers_of_a_torch_loader_have_iterators_of_their_own() -> None:
    pytest.importorskip("torch")
    _check(
        """
        import torch

        ds = loaded(1, 20, lambda number: np.full(20_000, number))
        it = iter(ds)
        kept = next(it)

        class Dataset(torch.utils.data.IterableDataset):
            def __iter__(self):
                try:
                    next(it)
                except RuntimeError as error:
                    assert "was forked" in str(error)
                else:
                    raise AssertionError("There was no error.")
                for number, element in enumerate(ds):
                    assert (element == number).all() and (kept == 0).all()
                    yield torch.from_numpy(element[:1].copy())

        loader = torch.utils.data.DataLoader(
            Dataset(), batch_size=None, num_workers=2, multiprocessing_context="fork"
        )
        got = sorted(int(element[0]) for element in loader)
        assert got == sorted([*range(20), *range(20)]), got
        assert [int(element[0]) for element in it] == list(range(1, 20))
        print("fine")
        """
    )
