"""Lets one thread at a time use an object, at nearly no cost while only one thread does.

A lock would cost as much as a small element, and an interruption could keep its holder from
releasing it. Instead the object has an attribute `user`: the number of the thread that uses it, or
0. A thread that finds the number of another thread waits until that resets it. If that has left the
methods here without doing so, it was interrupted.

Python with the GIL switches threads only at calls and at backward jumps, so no other thread runs
between a test of the attribute and an assignment to it that follows immediately. Without the GIL
this does not hold, so there a lock is taken around each method, too.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import types
from collections.abc import Callable
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from wholegrain._read import machine

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_SLEEP_S = 2e-4
_LOOKS = 10


class _Shared(Protocol):
    user: int
    turn_lock: threading.RLock  # Free on Pythons with the GIL.

    def note_abandoned(self) -> None:
        """Called if a method was interrupted before it could reset `user`."""


K = TypeVar("K", bound=_Shared)

_codes: set[types.CodeType] = set()
_HAS_GIL = machine.has_gil()


def in_turn(method: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
    """Make a method wait until no other thread uses its object.

    A signal handler may call it while the same thread uses the object: then it does not wait.
    """

    def alone(self: K, *args: P.args, **kwargs: P.kwargs) -> R:
        thread = get_ident()
        while self.user:
            if await_turn(self):
                return method(self, *args, **kwargs)
        self.user = thread
        try:
            return method(self, *args, **kwargs)
        finally:
            self.user = 0

    _codes.add(alone.__code__)
    return _locked(functools.update_wrapper(alone, method))  # type: ignore[return-value]


def moves_in_turn(method: Callable[[K, A], None]) -> Callable[[K, A], None]:
    """Do the same for a method that moves its object, and then resets `user` by itself.

    If it were reset here, an interruption could come in between, when the object has moved already.
    """

    def alone(self: K, given: A) -> None:
        thread = get_ident()
        while self.user:
            if await_turn(self):
                method(self, given)
                self.user = thread
                return None
        self.user = thread
        try:
            return method(self, given)
        except BaseException:
            self.user = 0
            raise

    _codes.add(alone.__code__)
    return _locked(functools.update_wrapper(alone, method))


def takes_turn(method: Callable[P, R]) -> Callable[P, R]:
    """Mark a method that sets and resets `user` by itself."""
    _codes.add(method.__code__)
    return _locked(method)


def _locked(method: F) -> F:
    """Return a method that only one thread runs at a time, on Pythons without the GIL."""
    if _HAS_GIL:
        return method

    def alone(self: _Shared, *args: Any, **kwargs: Any) -> Any:
        with self.turn_lock:
            return method(self, *args, **kwargs)

    return cast("F", functools.update_wrapper(alone, method))


def await_turn(shared: _Shared) -> bool:
    """Wait until no other thread uses an object. Return whether this thread is using it already."""
    while shared.user:
        if user_of(shared) == get_ident():
            return True
        time.sleep(_SLEEP_S)
    return False


def user_of(shared: _Shared) -> int | None:
    """Return the thread that uses an object; reset `user` if it has left without doing so."""
    user = shared.user
    if user == get_ident():
        is_abandoned = not _is_inside(shared)
    else:
        is_abandoned = user != 0 and _has_been_left_by(user, shared)
    if not is_abandoned:
        return shared.user or None
    shared.note_abandoned()
    shared.user = 0
    return None


def _is_inside(shared: _Shared) -> bool:
    """Return whether this thread is in one of these methods of the object, and does not wait."""
    inner: types.FrameType = sys._getframe()
    frame = inner.f_back
    while frame is not None:
        is_waiting = inner.f_code is await_turn.__code__
        if frame.f_code in _codes and not is_waiting and frame.f_locals.get("self") is shared:
            return True
        inner, frame = frame, frame.f_back
    return False


def _has_been_left_by(thread: int, shared: _Shared) -> bool:
    """Return whether another thread is in none of these methods although `user` is its number.

    Its local variables are not looked at, because it may change them meanwhile. It may also leave
    and enter while its stack is looked at, so it has to be seen outside several times in a row.
    """
    for _ in range(_LOOKS):
        inner: Any = None
        frame: types.FrameType | None = sys._current_frames().get(thread)
        while frame is not None:
            is_waiting = inner is not None and inner.f_code is await_turn.__code__
            if frame.f_code in _codes and not is_waiting:
                return False
            inner, frame = frame, frame.f_back
        if shared.user != thread:
            return False
        time.sleep(_SLEEP_S)
    return shared.user == thread


def already_executing_error() -> ValueError:
    """Return the error for `next` inside `next` of the same iterator."""
    return ValueError(
        "This iterator is already executing: `next` was called by a function or a signal handler"
        " that runs inside `next` of the same iterator."
    )
