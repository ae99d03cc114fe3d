"""Exceptions of workers, sent to the main process and raised there with their tracebacks."""

import ast
import pickle
import sys
import traceback
import types
from typing import Any, NamedTuple

from wholegrain._core.interruption import is_interruption
from wholegrain._workers.pickling import dumps_by_value

_MAX_CHAIN = 16


class WorkerError(RuntimeError):
    """Replaces an exception from a worker that could not be pickled.

    Attributes:
        type_name: The name of the exception's class.
        message: The exception's message.
        traceback_text: The traceback, as the worker would have printed it.
    """

    def __init__(self, type_name: str, message: str, traceback_text: str) -> None:
        super().__init__(type_name, message, traceback_text)
        self.type_name = type_name
        self.message = message
        self.traceback_text = traceback_text

    def __str__(self) -> str:
        text = f"{self.type_name}: {self.message}"
        if self.traceback_text:
            text += f"\n\nThe traceback in the worker:\n{self.traceback_text}"
        return text


class _Frame(NamedTuple):
    """One line of a traceback."""

    file: str
    line: int
    function: str


class _PackedError(NamedTuple):
    """An exception with its causes and contexts, ready to be pickled."""

    pickled: bytes | None
    parts: bytes | None
    type_name: str
    message: str
    text: str
    frames: list[_Frame]
    cause: "_PackedError | None"
    context: "_PackedError | None"
    suppress_context: bool


def pack_error(error: BaseException, hidden_file: str = "") -> bytes:
    """Pack an exception for `unpack_error` in another process.

    Args:
        error: The exception, with its traceback.
        hidden_file: Leading frames of the traceback are omitted while they are in this file.
    """
    return pickle.dumps(_pack(error, hidden_file, set()))


def _pack(error: BaseException, hidden_file: str, seen: set[int]) -> _PackedError:
    seen.add(id(error))

    def earlier(other: BaseException | None) -> _PackedError | None:
        if other is None or id(other) in seen or len(seen) >= _MAX_CHAIN:
            return None
        return _pack(other, hidden_file, seen)

    try:
        message = str(error)
    except Exception as failure:
        if is_interruption(failure):
            raise
        message = f"<its message cannot be computed: {failure!r}>"
    pickled = _pickle_whole(error)
    kind = type(error)
    return _PackedError(
        pickled=pickled,
        parts=_pickle_parts(error) if pickled is None else None,
        type_name=kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}",
        message=message,
        text="".join(traceback.format_tb(_without_hidden(error.__traceback__, hidden_file))),
        frames=_frames(_without_hidden(error.__traceback__, hidden_file)),
        cause=earlier(error.__cause__),
        context=earlier(error.__context__) if error.__cause__ is None else None,
        suppress_context=error.__suppress_context__,
    )


def _pickle_whole(error: BaseException) -> bytes | None:
    """Pickle an exception; None if it cannot be unpickled.

    Many cannot, because their `__init__` needs other arguments than `args` holds.
    """
    try:
        pickled = dumps_by_value(error)
        copy = pickle.loads(pickled)
        return pickled if type(copy) is type(error) and copy.args == error.args else None
    except Exception as failure:
        if is_interruption(failure):
            raise
        return None


def _pickle_parts(error: BaseException) -> bytes | None:
    """Pickle the class, arguments and attributes, with the `repr` of values that do not pickle."""
    args = tuple(_sendable(value) for value in error.args)
    attributes = {key: _sendable(value) for key, value in vars(error).items()}
    try:
        pickled = dumps_by_value((type(error), args, attributes))
        _from_parts(pickled)
    except Exception as failure:
        if is_interruption(failure):
            raise
        return None
    return pickled


def _sendable(value: Any) -> Any:
    try:
        pickle.loads(dumps_by_value(value))
    except Exception as failure:
        if is_interruption(failure):
            raise
        return repr(value)
    return value


def _from_parts(pickled: bytes) -> BaseException:
    kind, args, attributes = pickle.loads(pickled)
    error: BaseException = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(attributes)
    return error


def _without_hidden(
    trace: types.TracebackType | None, hidden_file: str
) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == hidden_file:
        trace = trace.tb_next
    return trace


def _frames(trace: types.TracebackType | None) -> list[_Frame]:
    return [
        _Frame(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(trace)
    ]


def unpack_error(data: bytes) -> BaseException:
    """Return the exception that `pack_error` packed, with its traceback, causes and contexts."""
    return _unpack(pickle.loads(data))


def _unpack(packed: _PackedError) -> BaseException:
    error: BaseException
    try:
        if packed.pickled is not None:
            error = pickle.loads(packed.pickled)
        elif packed.parts is not None:
            error = _from_parts(packed.parts)
        else:
            error = WorkerError(packed.type_name, packed.message, packed.text)
    except Exception as failure:  # Its class exists only in the worker.
        if is_interruption(failure):
            raise
        error = WorkerError(packed.type_name, packed.message, packed.text)
    error.__traceback__ = _traceback(packed.frames)
    error.__cause__ = _unpack(packed.cause) if packed.cause else None
    error.__context__ = _unpack(packed.context) if packed.context else None
    error.__suppress_context__ = packed.suppress_context
    return error


def _traceback(frames: list[_Frame]) -> types.TracebackType | None:
    """Return a traceback object with these frames.

    Debuggers, editors and the filter that hides our own frames treat it like any other traceback.
    It has no local variables and no column information.
    """
    trace = None
    for packed in reversed(frames):
        frame = _frame(packed)
        trace = types.TracebackType(trace, frame, frame.f_lasti, packed.line)
    return trace


def _frame(packed: _Frame) -> types.FrameType:
    # Python creates frames only for running code. So compile the call `frame()` with the worker's
    # file, line and function name; running it returns its own frame.
    line, nowhere = packed.line, -1
    name = ast.Name("frame", ast.Load(), lineno=line, col_offset=nowhere)
    call = ast.Expression(ast.Call(name, [], [], lineno=line, col_offset=nowhere))
    for node in (name, call.body):
        node.end_lineno, node.end_col_offset = line, nowhere
    code = compile(call, packed.file, "eval")
    code = code.replace(co_name=packed.function, co_qualname=packed.function)
    names = {"frame": sys._getframe, "__name__": "wholegrain worker"}  # noqa: SLF001
    frame: types.FrameType = eval(code, names)
    return frame


def describe_exit(code: int | None) -> str:
    """Describe an exit code, with its most likely cause."""
    if code is None:
        return "unknown (the process that starts workers has ended, too)"
    if code >= 0:
        return str(code)
    import signal

    try:
        name = signal.Signals(-code).name
    except ValueError:
        return str(code)
    likely = {
        "SIGKILL": "killed from outside, most often because memory ran out",
        "SIGSEGV": "a crash in native code",
        "SIGBUS": "a crash in native code, or shared memory that ran out",
        "SIGABRT": "native code gave up",
        "SIGFPE": "a crash in native code",
        "SIGILL": "native code that was built for another processor",
        "SIGTERM": "asked to end from outside",
    }.get(name)
    return f"{code} ({name}: {likely})" if likely else f"{code} ({name})"
