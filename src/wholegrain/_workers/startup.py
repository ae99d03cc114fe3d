"""Functions that every new process of this program calls before it unpickles user code.

A function is given by name, `"module:function"`, so that only names have to be sent.
"""

import importlib
from collections.abc import Iterable

_names: list[str] = []


def add(name: str) -> None:
    """Make every process that is started from now on call a function first."""
    if name not in _names:
        _names.append(name)


def remove(name: str) -> None:
    """Undo `add`."""
    if name in _names:
        _names.remove(name)


def names() -> tuple[str, ...]:
    """Return the names to send to a process that is about to be started."""
    return tuple(_names)


def run(names: Iterable[str]) -> None:
    """Call the functions in this process, which has just been started."""
    for name in names:
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)()
