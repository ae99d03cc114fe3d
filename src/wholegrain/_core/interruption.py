"""Exceptions that interrupt the consumer, as opposed to errors of an element."""

import functools
import inspect
import signal
import types
from collections.abc import Iterator
from typing import Any

from wholegrain._core.tracebacks import is_internal


def is_interruption(error: BaseException) -> bool:
    """Return whether an exception came from outside the pipeline: Ctrl-C, or a signal handler.

    That is a `KeyboardInterrupt`, or any exception that a signal handler raised, such as a timeout
    from a SIGALRM handler while a user's function runs. It says nothing about an element, so it is
    raised at once, and the element is read again. Any exception that a user's function itself
    raises, even a `SystemExit`, is the failure of an element.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    trace = error.__traceback__
    if trace is None:
        return False
    handlers = frozenset(_handler_codes())
    interrupted = trace.tb_frame
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code in handlers or _was_given(frame, interrupted):
            return True
        interrupted, trace = frame, trace.tb_next
    return False


def _was_given(frame: types.FrameType, interrupted: types.FrameType) -> bool:
    """Return whether a function received the interrupted frame as an argument.

    Signal handlers do. This recognises a handler that was uninstalled before it raised.
    """
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount]
    if code.co_flags & inspect.CO_VARARGS:
        names += (code.co_varnames[code.co_argcount + code.co_kwonlyargcount],)
    # Reading `f_locals` of our own frames would keep the error alive in them.
    if not names or frame is interrupted or is_internal(frame):
        return False
    found = frame.f_locals
    for name in names:
        value = found.get(name)
        given = value if isinstance(value, tuple) else (value,)
        if any(one is interrupted for one in given):
            return True
    return False


def _handler_codes() -> Iterator[types.CodeType]:
    """Yield the code of each signal handler that is written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if not callable(handler) or isinstance(
            handler, (signal.Handlers, types.BuiltinFunctionType)
        ):
            continue
        while isinstance(handler, functools.partial):
            handler = handler.func
        function = getattr(handler, "__func__", handler)
        if not hasattr(function, "__code__"):
            function = type(handler).__call__
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code


class suppress_errors:
    """Suppress the errors of a `with` block like `contextlib.suppress`, but no interruption.

    The kind alone does not tell: many handlers raise a `TimeoutError`, which is an `OSError`.

    Args:
        kinds: Which errors; all if there are none.
    """

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds or Exception

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, self._kinds) and not is_interruption(error)
