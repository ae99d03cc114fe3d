"""An exception at any line of `next` and the like: what it leaves can be closed, and all is gone.

The exceptions come out of a trace function, at lines and at the start of calls in the code of
iterators, threads and workers, as they might out of a signal handler. Some of the events are
chosen by chance, all of them if INTERRUPT_ALL is in the environment.
"""

import contextlib
import dis
import functools
import gc
import linecache
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import R, X, eventually, is_ours
from tests.workers.processes import descendants, is_running

_PACKAGE = Path(wg.__file__).parent
_TORN_IN = (str(_PACKAGE / "_workers"), str(_PACKAGE / "_read"), str(_PACKAGE / "_graph"))
# A trace function is also called where a signal handler never is, since that runs after calls and
# jumps only: at the line of a `try`, and when a `with` block is left, before `__exit__`.
_NOP = dis.opmap["NOP"]
_LEAVES_BLOCK = {
    dis.opmap[name]
    for name in ("LOAD_CONST", "SWAP", "PUSH_EXC_INFO", "POP_TOP", "COPY")
    if name in dis.opmap
}


class Torn(BaseException):
    """What the trace function raises."""


class Tearing:
    """A trace function that raises once, at an event of a given number."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.count = 0
        self.where = ""

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_TORN_IN):
            return None
        if event == "call" or (event == "line" and _may_be_interrupted(frame)):
            self.count += 1
            if self.count == self._at:
                code = frame.f_code
                self.where = f"{code.co_filename}:{frame.f_lineno}, {code.co_name}, {event}"
                sys.settrace(None)
                raise Torn
        return self


@functools.cache
def _is_with(file: str, line: int) -> bool:
    return linecache.getline(file, line).lstrip().startswith("with ")


def _may_be_interrupted(frame: Any) -> bool:
    code = frame.f_code
    operation = code.co_code[frame.f_lasti]
    if operation in _LEAVES_BLOCK:
        return not _is_with(code.co_filename, frame.f_lineno)
    return bool(operation != _NOP)


def _processes() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if is_running(pid)}


def _descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


def _threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if is_ours(t)}


def _prefetch(ds: Any, workers: Any) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))


def _parts(count: int) -> list[Any]:
    return [R(10 * n, 10 * n + 4).to_iter_dataset() for n in range(count)]


def _wait(element: int) -> int:
    time.sleep(0.001)
    return element


_PIPELINES: dict[str, tuple[Callable[[], Any], int]] = {
    "interleave": (lambda: X.InterleaveIterDataset(_parts(3), cycle_length=2), 80),
    "thread": (
        lambda: X.ThreadPrefetchIterDataset(R(12).to_iter_dataset(), prefetch_buffer_size=2),
        80,
    ),
    "threads": (lambda: X.multithread_prefetch(R(12).to_iter_dataset(), 2, 1), 80),
    "readers": (lambda: R(12).map(_wait).to_iter_dataset(wg.ReadOptions(2, 4)), 80),
    "workers": (lambda: _prefetch(R(12).to_iter_dataset(), 2), 20),
    "auto": (lambda: _prefetch(R(12).to_iter_dataset(), "auto"), 20),
    "workers in an interleave": (
        lambda: X.InterleaveIterDataset([_prefetch(part, 1) for part in _parts(2)], cycle_length=2),
        20,
    ),
}
"""Each with how many events an exception is raised at."""


def _first(ds: Any, state: Any) -> Generator[Any, None, None]:
    it = iter(ds)
    yield it
    next(it)


def _start(ds: Any, state: Any) -> Generator[Any, None, None]:
    it = iter(ds)
    yield it
    it.start_prefetch()


def _second(ds: Any, state: Any) -> Generator[Any, None, None]:
    it = iter(ds)
    next(it)
    yield it
    next(it)


def _restore(ds: Any, state: Any) -> Generator[Any, None, None]:
    it = iter(ds)
    next(it)
    yield it
    it.set_state(state)
    next(it)


_USES = {"next": _first, "second next": _second, "start": _start, "restore": _restore}


# Where the exception comes in a generator or a finalizer that is being dropped.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("use", _USES)
@pytest.mark.parametrize("name", _PIPELINES)
def test_a_torn_iterator_can_be_closed_and_leaves_nothing(name: str, use: str) -> None:
    make, most = _PIPELINES[name]
    ds = make()
    it = iter(ds)
    elements = []
    for element in it:
        elements.append(element)
        if len(elements) == 4:
            state = it.get_state()
    it.close()
    del it
    gc.collect()
    gc.freeze()  # Collecting is then a matter of what the iterators leave.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # A socket that nobody had yet.
            events = _tear(ds, state, use, sys.maxsize)
            assert events > 8, "There was nothing to tear."
            if "INTERRUPT_ALL" in os.environ:
                most = events
            for at in sorted(random.Random(events).sample(range(events), min(most, events))):
                _tear(ds, state, use, at + 1)
    finally:
        gc.unfreeze()
    it = iter(ds)
    assert list(it) == elements
    it.close()


def _tear(ds: Any, state: Any, use: str, at: int) -> int:
    """Raise at an event; return how many there were."""
    before = _processes(), _descriptors(), _threads()
    steps: Any = _USES[use](ds, state)
    it: Any = next(steps)
    tearing = Tearing(at)
    sys.settrace(tearing)
    try:
        next(steps, None)
    except Torn:
        pass
    finally:
        sys.settrace(None)
    steps.close()
    it.close()
    it.close()
    del it, steps

    def left() -> list[set[Any]]:
        processes, descriptors, threads = before
        return [_processes() - processes, _descriptors() - descriptors, _threads() - threads]

    def nothing_left() -> bool:
        if not any(left()):
            return True
        gc.collect()
        return not any(left())

    assert eventually(nothing_left), f"Torn at {tearing.where}: {left()} is left."
    return tearing.count
