"""Names that a package imports on first use."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package.

    Args:
        package: Its name.
        homes: The module that defines each name; for a submodule, the package itself.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            # With `name` and `obj`, tracebacks suggest similar names.
            module = sys.modules.get(package)
            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=module)
        if home == package:
            value: Any = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
