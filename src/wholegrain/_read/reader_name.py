"""The names of reader threads, which are Grain's: programs parse the number in them."""

import threading
from collections.abc import Callable, Sequence
from typing import Any


def reader_name(number: int | str) -> str:
    """Return the name of a reader thread."""
    return f"grain-prefetch_{number}"


_FIRST = reader_name(0)


def as_first_reader(read: Callable[..., Sequence[Any]]) -> Callable[..., Any]:
    """Return a function that reads under the name of the first reader thread.

    In Grain only reader threads read. Here the consumer reads itself if that is faster.
    """

    def named(first: int, last: int, *into: Any) -> Sequence[Any]:
        thread = threading.current_thread()
        name = thread.name
        try:
            thread.name = _FIRST
            return read(first, last, *into)
        finally:
            thread.name = name

    return named
