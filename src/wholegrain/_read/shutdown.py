"""Interpreter shutdown: reader threads finish their current read.

At shutdown, Python stops a daemon thread as soon as it needs the GIL. If a native library is
reading a file in that thread, the whole process may be aborted.
"""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from wholegrain._read.reader_name import reader_name

_Owner = TypeVar("_Owner")

_MAX_WAIT_S = 1.0
_PREFIXES = ("wholegrain-", reader_name(""))

_staying: set[int] = set()
_stops: "weakref.WeakKeyDictionary[Any, Callable[[Any], object]]" = weakref.WeakKeyDictionary()


def stop_at_exit(owner: _Owner, stop: Callable[[_Owner], object]) -> None:
    """Call `stop(owner)` at interpreter shutdown, and wait for its threads.

    The threads are the readers and those whose names begin with "wholegrain-". After one second,
    shutdown continues without waiting for the rest.
    """
    _stops[owner] = stop


def stay() -> NoReturn:
    """Block forever, in a thread that has nothing more to do. Shutdown does not wait for it."""
    _staying.add(threading.get_ident())
    while True:
        threading.Event().wait()


exiting = threading.Event()
"""Set once interpreter shutdown has started.

A worker that disappears after this is expected and not reported."""


def wait_if_exiting() -> None:
    """Block a daemon thread forever if interpreter shutdown has started."""
    if exiting.is_set() and threading.current_thread() is not threading.main_thread():
        stay()


@atexit.register
def _finish() -> None:
    if not _stops:
        return
    for owner, stop in list(_stops.items()):
        stop(owner)
    deadline = time.monotonic() + _MAX_WAIT_S
    for thread in threading.enumerate():
        if thread.daemon and thread.name.startswith(_PREFIXES):
            while thread.is_alive() and thread.ident not in _staying:
                thread.join(0.01)
                if time.monotonic() > deadline:
                    return


if hasattr(os, "register_at_fork"):
    # A forked child does not have the threads, and may find their locks held.
    os.register_at_fork(after_in_child=_stops.clear)
