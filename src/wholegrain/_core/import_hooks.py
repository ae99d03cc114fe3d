"""Calls a function after a module of another package has been imported."""

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_changes: dict[str, Callable[[Any], None]] = {}


def after_import(name: str, change: Callable[[Any], None]) -> None:
    """Call `change` with the module `name`, now or when it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
        return
    _changes[name] = change
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds no module itself, but calls `change` after another finder's loader ran the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _changes.get(fullname)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        setattr(spec.loader, "exec_module", execute_and_change)  # noqa: B010
        return spec
