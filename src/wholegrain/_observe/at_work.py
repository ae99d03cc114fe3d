"""In which functions of the user's the threads of this process are: why it may hang."""

from __future__ import annotations

import os
import sys
import types
from collections import Counter

from wholegrain._core.tracebacks import is_internal

_MOST_PLACES = 5
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SOURCES = os.path.join(_PACKAGE, "sources") + os.sep
_VIEWERS = os.path.join(_PACKAGE, "_observe") + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = os.path.join(_LIBRARY, "site-packages") + os.sep


def places() -> list[str]:
    """Return where threads that run pipelines are in code of the user's, such as `f (a.py:8)`."""
    found: Counter[str] = Counter()
    for frame in sys._current_frames().values():
        place = _place(frame)
        if place is not None:
            found[place] += 1
    return [
        place if count == 1 else f"{place}, {count} threads"
        for place, count in found.most_common(_MOST_PLACES)
    ]


def _place(frame: types.FrameType | None) -> str | None:
    """Return the function that a pipeline has called in a thread; None if it is in none."""
    called: types.FrameType | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_VIEWERS):
            return None
        if is_internal(frame) and not file.startswith(_SOURCES):
            break
        called, frame = frame, frame.f_back
    if called is None or frame is None:
        return None
    code, file = called.f_code, called.f_code.co_filename
    if file.startswith(_LIBRARY) and not file.startswith(_INSTALLED):
        return None  # We have called it ourselves, to wait for something.
    return f"{code.co_qualname} ({os.path.basename(file)}:{called.f_lineno})"
