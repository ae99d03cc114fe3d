"""Errors of commands that cannot do what was asked."""

import sys
import traceback

from wholegrain._core.errors import stage_notes
from wholegrain._core.tracebacks import is_internal


class BadInput(Exception):
    """The command cannot do what was asked; the message is the one line that is printed."""


def one_line(error: BaseException) -> str:
    """Return the message of an exception in one line."""
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.strerror}: {str(error.filename)!r}."
    text = " ".join(str(error).split())
    if isinstance(error, BadInput):
        return text
    return f"{text or 'no message'} ({type(error).__name__})"


def with_place(error: BaseException) -> str:
    """Return the message of an exception from a pipeline, with its line and stage."""
    notes = [" ".join(note.split()) for note in stage_notes(error)]
    return "\n".join([one_line(error) + _line_of(error), *notes])


def _line_of(error: BaseException) -> str:
    """Return the line of the user's code that raised an exception, or called what raised it."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_internal(frame) and frame.f_code.co_filename != "<frozen runpy>"
    ]
    own = [at for at in frames if not at[0].f_code.co_filename.startswith(sys.prefix)]
    if not own and not frames:
        return ""
    frame, line = (own or frames)[-1]
    return f", in {frame.f_code.co_name} at {frame.f_code.co_filename}:{line}"
