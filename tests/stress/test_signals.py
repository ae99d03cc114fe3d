"""Exceptions out of signal handlers while `next` computes: none is lost, no element either."""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import wholegrain as wg

# A signal between the opening of a file and the `with` that closes it leaves it to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_SIGNALS = 1000
_LENGTH = 1 << 40


class TimedOut(Exception):
    """Raised by the signal handler."""


_PACKAGE = os.path.dirname(wg.__file__)


def _is_in_next(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__next__" and code.co_filename.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note what was raised in a finalizer or a hook of the collector: Python can only print it."""
    found: list[int] = []

    def note(hook: Any) -> None:
        if isinstance(hook.exc_value, TimedOut):
            found.append(hook.exc_value.args[0])

    monkeypatch.setattr(sys, "unraisablehook", note)
    return found


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Count the signals for which the handler has raised: those that came during `next`."""
    counts = [0]

    def handle(_: int, frame: FrameType | None) -> None:
        if _is_in_next(frame):
            counts[0] += 1
            raise TimedOut(counts[0])

    before = signal.signal(signal.SIGUSR1, handle)
    yield counts
    signal.signal(signal.SIGUSR1, before)


def _work(element: int) -> int:
    for _ in range(20):
        element += 1
    return element


def _slow_work(element: int) -> int:
    time.sleep(0.0005)
    return element


_PIPELINES: dict[str, Callable[[], Any]] = {
    "by index": lambda: (
        wg.MapDataset.range(_LENGTH).map(_work).map(_work).to_iter_dataset(wg.ReadOptions(0))
    ),
    "in order": lambda: wg.MapDataset.range(_LENGTH).to_iter_dataset().map(_work).map(_work),
    "batches": lambda: (
        wg.MapDataset.range(_LENGTH)
        .to_iter_dataset()
        .filter(lambda x: _work(x) % 7)
        .batch(8, batch_fn=tuple)
    ),
    "threads": lambda: (
        wg.MapDataset.source(range(_LENGTH)).map(_slow_work).to_iter_dataset(wg.ReadOptions(4, 32))
    ),
}


@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_each_exception_out_of_a_signal_handler_is_raised_once(
    pipeline: str, handled: list[int], unraisable: list[int]
) -> None:
    it = iter(_PIPELINES[pipeline]())
    main, done = threading.main_thread().ident, threading.Event()
    assert main is not None
    raised: list[int] = []

    def send() -> None:
        while not done.wait(random.uniform(0, 0.002)):
            if handled[0] == len(raised) + len(unraisable):  # One at a time.
                signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        while len(raised) < _SIGNALS:
            try:
                next(it)
            except TimedOut as error:
                raised.append(error.args[0])
            assert handled[0] == len(raised) + len(unraisable)
    finally:
        done.set()
        sender.join()
    assert sorted(raised + unraisable) == list(range(1, handled[0] + 1))
    assert len(unraisable) < _SIGNALS / 10
