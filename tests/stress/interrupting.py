"""Raises an exception at each place of the code that starts, asks and ends processes.

As a signal handler may at any of them: at every line and call of `wholegrain/_workers`, one place
after the other. After each, workers have to start and to give the right elements, and nothing may
be left open. Run as a program: `python -m tests.stress.interrupting <what> [first] [step]`.
"""

import functools
import gc
import linecache
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.workers.iterators import Mapped
from tests.workers.processes import descendants, is_running
from wholegrain._workers.backend import WorkerSpec, resolve
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.local import launcher
from wholegrain._workers.program import Program
from wholegrain._workers.remote import RemoteIterator

_PACKAGE = os.path.join("wholegrain", "_workers")


class Interrupted(BaseException):
    """Raised out of nowhere."""


def _leaves_with(frame: Any) -> bool:
    """Say whether a `with` is about to be left: no signal handler runs before it has been."""
    if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
        return False
    first = _first_instructions(frame.f_code).get(frame.f_lineno, frame.f_lasti)
    return bool(frame.f_lasti > first)


@functools.cache
def _first_instructions(code: types.CodeType) -> dict[int, int]:
    found: dict[int, int] = {}
    for start, _, line in code.co_lines():
        if line is not None:
            found.setdefault(line, start)
    return found


def interrupted(action: Callable[[], Any], place: int) -> bool:
    """Raise at a place in what `action` does; say whether it came so far."""
    seen = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen
        file = frame.f_code.co_filename
        if _PACKAGE not in file:
            return None
        if event in ("call", "line") and not _leaves_with(frame):
            seen += 1
            if seen == place:
                sys.settrace(None)
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        action()
    except Interrupted:
        pass
    finally:
        sys.settrace(None)
    return seen >= place


def program(number: int) -> Program:
    """Pack something that is too large for a message: an array, and `bytes`."""
    table, text = np.full(20_000, number), bytes([number % 256]) * 70_000
    return Program.pack(lambda *_: Mapped(3, lambda n: (int(table[n]), text[n], n)))


def use(number: int) -> None:
    """Start a worker, receive from it, ask how it ended, and end it."""
    spec = WorkerSpec(program=program(number), index=0, count=1, buffer_size=1, hold_budget=1 << 20)
    client = WorkerClient(resolve(None), spec)
    client.receive()
    client.exit()
    client.close()


def restart(number: int) -> None:
    """End the process that starts workers, and start another one."""
    launcher.close_launchers()
    launcher.get_launcher()
    use(number)


def check(number: int) -> None:
    """Fail if workers do not give what they should."""
    iterator: RemoteIterator[Any] = RemoteIterator(
        program(number), 0, 1, buffer_size=1, initial_state={"next_index": 0}
    )
    expected = [(number, number % 256, n) for n in range(3)]
    assert list(iterator) == expected, (number, expected)
    iterator.close()


def left_open() -> tuple[int, int]:
    """Return how many descriptors this process has, and the one that starts workers."""
    gc.collect()
    current: Any = launcher.get_launcher()
    of_starter = f"/proc/{current.server_pid}/fd"
    return len(os.listdir("/proc/self/fd")), len(os.listdir(of_starter))


def assert_closed(before: tuple[int, int], place: int) -> None:
    """Fail if more is open than before, and stays so."""
    deadline = time.monotonic() + 10
    while not all(now <= then for now, then in zip(left_open(), before, strict=True)):
        assert time.monotonic() < deadline, (place, before, left_open())
        time.sleep(0.01)


def main(what: str, first: int = 1, step: int = 1) -> None:
    """Interrupt `use` or `restart` at each place, or at every `step`-th from `first` on."""
    sys.unraisablehook = lambda _: None  # An exception in `__del__` is told, and lost.
    action = {"use": use, "restart": restart}[what]
    for number in range(3):
        action(number)
    before = left_open()
    place = first
    while interrupted(functools.partial(action, place), place):
        check(place)
        if what == "restart" or place % 20 == 0:
            assert_closed(before, place)
        place += step
    assert_closed(before, place)
    children = [pid for pid in descendants(os.getpid()) if is_running(pid)]
    assert len(children) == 1, children
    print("places:", place - first)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
