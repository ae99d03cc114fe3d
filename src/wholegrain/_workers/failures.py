"""What went wrong in a worker, told in the main process as if it had happened there."""

import pickle
import traceback
import types
from typing import Any

from wholegrain._workers.pickling import dumps_by_value

_MAX_CHAIN = 16


class WorkerError(RuntimeError):
    """Stands in for an exception from a worker that could not itself be sent.

    Attributes:
        type_name: The name of the exception's class.
        message: What it said.
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


# Every worker waits until these classes are made: no named tuples, which take long.
class _Frame:
    """A line of a traceback."""

    def __init__(
        self, file: str, line: int, function: str, end_line: int, column: int, end_column: int
    ) -> None:
        self.file = file
        self.line = line
        self.function = function
        self.end_line = end_line
        self.column = column
        self.end_column = end_column


class _PackedError:
    """An exception, and those before it, ready to be pickled."""

    def __init__(
        self,
        pickled: bytes | None,
        parts: bytes | None,
        type_name: str,
        message: str,
        text: str,
        frames: list[_Frame],
        cause: "_PackedError | None",
        context: "_PackedError | None",
        suppress_context: bool,
    ) -> None:
        self.pickled = pickled
        self.parts = parts
        self.type_name = type_name
        self.message = message
        self.text = text
        self.frames = frames
        self.cause = cause
        self.context = context
        self.suppress_context = suppress_context


def pack_error(error: BaseException, hidden_file: str = "") -> bytes:
    """Return what `unpack_error` makes the exception of, in another process.

    Args:
        error: The exception, with its traceback.
        hidden_file: The first lines of the traceback are left out while they are in this file.
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
        message = f"<its text cannot be had: {failure!r}>"
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
    """Pickle an exception, if it also comes back: many do not, for what their __init__ asks."""
    try:
        pickled = dumps_by_value(error)
        copy = pickle.loads(pickled)
        return pickled if type(copy) is type(error) and copy.args == error.args else None
    except Exception:
        return None


def _pickle_parts(error: BaseException) -> bytes | None:
    """Pickle the class, the arguments and the attributes, with text for what does not pickle."""
    args = tuple(_sendable(value) for value in error.args)
    attributes = {key: _sendable(value) for key, value in vars(error).items()}
    try:
        pickled = dumps_by_value((type(error), args, attributes))
        _from_parts(pickled)
    except Exception:
        return None
    return pickled


def _sendable(value: Any) -> Any:
    try:
        pickle.loads(dumps_by_value(value))
    except Exception:
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
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        line = trace.tb_lineno
        positions = list(code.co_positions())
        position = (
            positions[trace.tb_lasti // 2] if trace.tb_lasti // 2 < len(positions) else (None,) * 4
        )
        first, end_line, column, end_column = position
        if first != line or end_line is None or column is None or end_column is None:
            end_line = column = end_column = -1
        frames.append(_Frame(code.co_filename, line, code.co_name, end_line, column, end_column))
        trace = trace.tb_next
    return frames


def unpack_error(data: bytes) -> BaseException:
    """Return the exception that `pack_error` packed, with its traceback and those before it."""
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
    except Exception:  # Of a class that exists only there.
        error = WorkerError(packed.type_name, packed.message, packed.text)
    error.__traceback__ = _traceback(packed.frames)
    error.__cause__ = _unpack(packed.cause) if packed.cause else None
    error.__context__ = _unpack(packed.context) if packed.context else None
    error.__suppress_context__ = packed.suppress_context
    return error


def _traceback(frames: list[_Frame]) -> types.TracebackType | None:
    trace = None
    for frame in reversed(frames):
        try:
            # A frame exists only where code runs: so some code runs, under the right names.
            exec(_raising_code(frame), {"__name__": "wholegrain worker"})
        except ZeroDivisionError as error:
            raised = error.__traceback__
            assert raised is not None
            assert raised.tb_next is not None
            inner = raised.tb_next
            trace = types.TracebackType(trace, inner.tb_frame, inner.tb_lasti, frame.line)
    return trace


def _raising_code(frame: _Frame) -> types.CodeType:
    code = compile("0/0", frame.file, "eval")
    return code.replace(
        co_name=frame.function,
        co_qualname=frame.function,
        co_firstlineno=frame.line,
        co_linetable=_line_table(frame, len(code.co_code) // 2),
    )


def _line_table(frame: _Frame, units: int) -> bytes:
    """Encode one position for all instructions, as CPython's "location table" wants it."""
    table = bytearray()
    while units > 0:
        span = min(units, 8)
        if frame.column < 0:
            table += bytes([0x80 | 13 << 3 | span - 1, 0])  # A line without columns.
        else:
            table += bytes([0x80 | 14 << 3 | span - 1, 0])
            for number in (frame.end_line - frame.line, frame.column + 1, frame.end_column + 1):
                table += _varint(number)
        units -= span
    return bytes(table)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 64:
        encoded.append(0x40 | number & 63)
        number >>= 6
    encoded.append(number)
    return bytes(encoded)


def describe_exit(code: int | None) -> str:
    """Say how a process ended, and what usually is the reason."""
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
