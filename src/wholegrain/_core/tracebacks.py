"""Removes the library's own frames from tracebacks, so that they show the user's code."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator

from wholegrain._core.config import config

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Files whose frames do not help users: this package's, and those that run its threads.
_INTERNAL = (
    _PACKAGE,
    _LIBRARY + "threading.py",
    os.path.join(_LIBRARY, "concurrent", "futures") + os.sep,
)

_NOTE = (
    "(wholegrain left its own frames out of this traceback."
    " `wholegrain.config.update('py_traceback_filtering', 'off')` shows them.)"
)


class UnfilteredStackTraceError(Exception):
    """Carries the whole traceback of an error from which the library's frames were removed."""


def keep_user_frames(error: BaseException) -> None:
    """Remove the library's frames from the traceback of an error, as `config` specifies.

    `__next__` of an iterator that users call has to call this before it raises `error` again.
    """
    if isinstance(error, StopIteration):
        return
    mode = config.py_traceback_filtering
    if mode == "auto":
        mode = "tracebackhide" if _in_ipython() else "quiet_remove_frames"
    if mode == "off":
        return
    if mode == "tracebackhide":
        for entry in _entries(error.__traceback__):
            if is_internal(entry.tb_frame) and entry.tb_next is not None:
                entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    whole = error.__traceback__
    if not _shorten(error):
        return
    for earlier in _earlier(error):
        _shorten(earlier)
    if mode == "quiet_remove_frames":
        if _NOTE not in getattr(error, "__notes__", ()):
            error.add_note(_NOTE)
    elif not isinstance(error.__cause__, UnfilteredStackTraceError):
        _attach(error, whole)


def is_internal(frame: types.FrameType) -> bool:
    """Return whether a frame runs code of this package, or of the threads that run it."""
    return frame.f_code.co_filename.startswith(_INTERNAL)


def _entries(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _shorten(error: BaseException) -> bool:
    """Remove internal frames, except the one that raised; return whether there were any.

    For an interrupt such as Ctrl-C the last frame is removed, too: it did not raise it.
    """
    entries = list(_entries(error.__traceback__))
    users = [e for e in entries if not is_internal(e.tb_frame)]
    raised_here = isinstance(error, Exception)
    kept = [e for e in entries if e in users or (raised_here and e.tb_next is None)]
    if len(kept) == len(entries):
        return False
    shorter = None
    for entry in reversed(kept):
        line = entry.tb_lineno or -1  # None at an instruction without a line, after a signal.
        shorter = types.TracebackType(shorter, entry.tb_frame, entry.tb_lasti, line)
    error.__traceback__ = shorter
    return True


def _earlier(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that Python prints before `error`."""
    seen = {id(error)}
    earlier: BaseException | None = error
    while earlier is not None:
        earlier = earlier.__cause__ or earlier.__context__
        if earlier is None or id(earlier) in seen:
            return
        seen.add(id(earlier))
        yield earlier


def _attach(error: BaseException, whole: types.TracebackType | None) -> None:
    """Make the whole traceback the cause of `error`, and its previous cause the cause of that."""
    unfiltered = UnfilteredStackTraceError(
        "The whole traceback, with the frames of wholegrain, is above. The one below shows the same"
        f" error: {type(error).__name__}."
    ).with_traceback(whole)
    unfiltered.__cause__ = error.__cause__
    unfiltered.__context__ = error.__context__
    unfiltered.__suppress_context__ = error.__suppress_context__
    error.__cause__ = unfiltered


def _in_ipython() -> bool:
    """Return whether this is an IPython that supports `__tracebackhide__`."""
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython, "version_info", (0,)) < (7, 17):
        return False
    return ipython.get_ipython() is not None
