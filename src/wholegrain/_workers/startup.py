"""Functions that every new process of this program calls before it unpickles user code.

A function is given by name, `"module:function"`, so that only names and arguments are sent.
"""

import importlib
from collections.abc import Iterable
from typing import Any

Call = tuple[str, tuple[Any, ...]]
"""The name of a function, and its arguments, which can be pickled."""

_calls: dict[str, tuple[Any, ...]] = {}


def add(name: str, *arguments: Any) -> None:
    """Make every process that is started from now on call a function first."""
    _calls[name] = arguments


def remove(name: str) -> None:
    """Undo `add`."""
    _calls.pop(name, None)


def calls() -> tuple[Call, ...]:
    """Return the calls to send to a process that is about to be started."""
    return tuple(_calls.items())


def run(calls: Iterable[Call]) -> None:
    """Call the functions in this process, which has just been started, and in those it starts."""
    for name, arguments in calls:
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)(*arguments)
        add(name, *arguments)
