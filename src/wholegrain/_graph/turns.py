"""Lets one thread at a time use an object, at nearly no cost while only one thread does.

A lock would cost as much as a small element. Instead the object has a flag, `in_use`. A thread that
finds the flag set looks for the method that has set it in the stacks of all threads. If it is in
none of them, an interruption kept it from resetting the flag.

Python switches threads only at calls and at backward jumps, so no other thread runs between a test
of the flag and an assignment to it that follows immediately.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

_SLEEP_S = 2e-4


class _Shared(Protocol):
    in_use: bool

    def note_abandoned(self) -> None:
        """Called if a method was interrupted before it could reset the flag."""


K = TypeVar("K", bound=_Shared)

_codes: set[types.CodeType] = set()


def in_turn(method: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
    """Make a method wait until no other thread uses its object.

    A signal handler may call it while the same thread uses the object: then it does not wait.
    """

    def alone(self: K, *args: P.args, **kwargs: P.kwargs) -> R:
        while self.in_use:
            if await_turn(self):
                return method(self, *args, **kwargs)
        self.in_use = True
        try:
            return method(self, *args, **kwargs)
        finally:
            self.in_use = False

    _codes.add(alone.__code__)
    return functools.update_wrapper(alone, method)  # type: ignore[return-value]


def moves_in_turn(method: Callable[[K, A], None]) -> Callable[[K, A], None]:
    """Do the same for a method that moves its object, and then resets the flag by itself.

    If the flag were reset here, an interruption could come in between, when it has moved already.
    """

    def alone(self: K, given: A) -> None:
        while self.in_use:
            if await_turn(self):
                method(self, given)
                self.in_use = True
                return None
        self.in_use = True
        try:
            return method(self, given)
        except BaseException:
            self.in_use = False
            raise

    _codes.add(alone.__code__)
    return functools.update_wrapper(alone, method)


def takes_turn(method: Callable[P, R]) -> Callable[P, R]:
    """Mark a method that sets and resets the flag by itself."""
    _codes.add(method.__code__)
    return method


def await_turn(shared: _Shared) -> bool:
    """Wait until no other thread uses an object. Return whether this thread is using it already."""
    while shared.in_use:
        user = user_of(shared)
        if user == threading.get_ident():
            return True
        time.sleep(_SLEEP_S)
    return False


def user_of(shared: _Shared) -> int | None:
    """Return the thread that uses an object; reset the flag if no thread does."""
    for user in _users(shared):
        return user
    time.sleep(_SLEEP_S)  # A thread may have begun to use it while others were looked at.
    for user in _users(shared):
        return user
    if shared.in_use:
        shared.note_abandoned()
        shared.in_use = False
    return None


def _users(shared: _Shared) -> Iterator[int]:
    """Yield the threads that are in one of these methods, and are not waiting there."""
    for thread, top in sys._current_frames().items():
        inner: Any = None
        frame: types.FrameType | None = top
        while frame is not None:
            is_method = frame.f_code in _codes and frame.f_locals.get("self") is shared
            if is_method and (inner is None or inner.f_code is not await_turn.__code__):
                yield thread
                break
            inner, frame = frame, frame.f_back


def already_executing_error() -> ValueError:
    """Return the error for `next` inside `next` of the same iterator."""
    return ValueError(
        "This iterator is already executing: `next` was called by a function or a signal handler"
        " that runs inside `next` of the same iterator."
    )
