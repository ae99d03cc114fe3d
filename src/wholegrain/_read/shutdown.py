"""The end of a program: threads that read finish what they are at.

Python tears a daemon thread out of what it does when the interpreter ends. If that is a native
library, reading a file, the whole process may be aborted.
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
    """Have `stop(owner)` called when the program ends, and its threads waited for.

    The threads are those whose names begin with "wholegrain-", and readers. One that takes a second
    or longer is left to its fate.
    """
    _stops[owner] = stop


def stay() -> NoReturn:
    """Never return, in a thread that has nothing more to do: nobody waits for it."""
    _staying.add(threading.get_ident())
    while True:
        threading.Event().wait()


exiting = threading.Event()
"""Set when the program ends and workers are let go: from then on, that they are gone is no news."""


def wait_if_exiting() -> None:
    """Never return to a daemon thread once the program is ending: it ends where it is."""
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
    # A forked child has none of the threads, and may find their locks held.
    os.register_at_fork(after_in_child=_stops.clear)
