"""Hooks for forks of the user's process, in the parent and in the child.

A forked child has a copy of every object, and shares shared memory and the connections to workers
with its parent. The workers keep serving the parent alone.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from wholegrain._core.errors import take_no_place

_Owner = TypeVar("_Owner")
_Calls = weakref.WeakKeyDictionary[Any, Callable[[Any], object]]

_in_parent: _Calls = weakref.WeakKeyDictionary()
_in_child: _Calls = weakref.WeakKeyDictionary()


def call_in_parent(owner: _Owner, function: Callable[[_Owner], object]) -> None:
    """Call `function(owner)` in a process before it is forked, and again afterwards.

    Other threads may run during the first call, but not between the fork and the second call.
    """
    _in_parent[owner] = function


def call_in_child(owner: _Owner, function: Callable[[_Owner], object]) -> None:
    """Call `function(owner)` in a forked child, before anything else runs there."""
    _in_child[owner] = function


def used_in_child_error(parent: int) -> RuntimeError:
    """Return the error for a forked child that uses an iterator of its parent."""
    error = RuntimeError(
        f"This iterator belongs to process {parent}, from which this process ({os.getpid()}) was"
        " forked: the workers or threads it uses are that process's. Make a new iterator in this"
        " process with `iter(ds)`; to continue from here, give it the state of this one:"
        " `new.set_state(old.get_state())`."
    )
    take_no_place(error)
    return error


def _call(functions: _Calls) -> None:
    while True:
        try:
            found = list(functions.items())
        except RuntimeError:  # Another thread added an entry meanwhile.
            continue
        break
    for owner, function in found:
        function(owner)


def _call_in_child() -> None:
    _call(_in_child)
    # Earlier objects belong to the parent, also if this process is forked again.
    _in_parent.clear()
    _in_child.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _call(_in_parent),
        after_in_parent=lambda: _call(_in_parent),
        after_in_child=_call_in_child,
    )
