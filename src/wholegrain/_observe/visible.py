"""The runs of this program that others can look at."""

from __future__ import annotations

import os
import weakref
from typing import Any

_VISIBLE_AFTER_S = 1.0

runs: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
"""When each run of this process was first seen."""

_is_hidden = os.environ.get("WHOLEGRAIN_TOP", "1") == "0"
_is_listening = False


def notice(observed: Any, now: float) -> None:
    """Make a run visible once it has lasted for a while. Called about every 10 ms of a run."""
    if now - runs.setdefault(observed, now) > _VISIBLE_AFTER_S and not _is_hidden:
        listen()


def listen() -> None:
    """Let others look at the runs of this process."""
    global _is_listening
    if not _is_listening:
        from wholegrain._observe import live  # It imports `socket`, and most programs are short.

        live.listen()
        _is_listening = True


def listen_no_more() -> None:
    """Forget all runs, in a forked child: they are its parent's."""
    global _is_listening
    _is_listening = False
    runs.clear()
