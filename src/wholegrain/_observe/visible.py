"""The runs of this program that others can look at.

A run is entered here when it is opened. A thread that sleeps meanwhile looks a second later: if a
run is still there, also one that has not given its first element, others can look from then on.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

from wholegrain._read import forks

_VISIBLE_AFTER_S = 1.0

_runs: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
"""When each run of this process was opened."""

_is_hidden = os.environ.get("WHOLEGRAIN_TOP", "1") == "0"
_lock = threading.RLock()  # A signal handler may open a run meanwhile.
_watch: _Watch | None = None  # None if there is no thread that makes runs visible.


def opened(observed: Any) -> None:
    """Make a run visible if it lasts for a while."""
    global _watch
    with _lock:
        _runs.setdefault(observed, time.perf_counter())
        if _watch is None and not _is_hidden:
            _watch = _Watch()


def current() -> list[tuple[Any, float]]:
    """Return the runs of this process, and when each was opened."""
    with _lock:
        return list(_runs.items())


class _Watch:
    """A thread that sleeps until a run is a second old, and then answers others."""

    def __init__(self) -> None:
        forks.call_in_child(self, _Watch._leave_to_parent)
        threading.Thread(target=self._watch, name="wholegrain-top", daemon=True).start()

    def _watch(self) -> None:
        global _watch
        while True:
            time.sleep(_VISIBLE_AFTER_S)
            with _lock:
                oldest = min(_runs.values(), default=None)
                if oldest is None:  # The next run that is opened starts another thread.
                    _watch = None
                    return
            if time.perf_counter() - oldest >= _VISIBLE_AFTER_S:
                break
        from wholegrain._observe import live  # It imports `socket`, and most programs are short.

        live.serve()

    def _leave_to_parent(self) -> None:
        """Forget all runs, in a forked child: they are its parent's."""
        global _lock, _watch
        _lock, _watch = threading.RLock(), None
        _runs.clear()
