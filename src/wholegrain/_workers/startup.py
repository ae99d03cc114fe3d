"""What other processes of this program do before they load anything of the user's.

Functions are named, `"module:function"`, so that nothing but names has to travel.
"""

import importlib
from collections.abc import Iterable

_names: list[str] = []


def add(name: str) -> None:
    """Have every process that is started from now on call a function, once and first."""
    if name not in _names:
        _names.append(name)


def remove(name: str) -> None:
    """Take back `add`."""
    if name in _names:
        _names.remove(name)


def names() -> tuple[str, ...]:
    """Return what was added, for a process that is about to be started."""
    return tuple(_names)


def run(names: Iterable[str]) -> None:
    """Do in this process what the one that started it has asked for."""
    for name in names:
        module, _, function = name.partition(":")
        getattr(importlib.import_module(module), function)()
