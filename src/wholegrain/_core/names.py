"""The names of transformations in messages, reports and `str()`."""

import types
from typing import Any


def transform_name(transform: Any) -> str:
    """Return the name of a transformation: its class, or a function's name, file and line."""
    if isinstance(transform, (types.FunctionType, types.MethodType)):
        code = transform.__code__
        path = "/".join(code.co_filename.split("/")[-3:])
        return f"{transform.__name__} @ .../{path}:{code.co_firstlineno}"
    name = getattr(transform, "__name__", None)
    if isinstance(name, str):
        return name
    kind = type(transform)
    # The class defines its own text, which is more specific than its name.
    if "__str__" in _own(kind) or "__repr__" in _own(kind):
        return str(transform)
    return kind.__name__


def kind_of(value: Any) -> str:
    """Return the name of the class of a value, with its article: `an int`, `a dict`."""
    name = type(value).__name__
    article = "an" if name.startswith(("ndarray", *"aeioAEIO")) else "a"
    return f"{article} {name}"


def _own(kind: type) -> set[str]:
    """Return the names that a class or its bases define, other than `object`."""
    return {name for base in kind.__mro__[:-1] for name in vars(base)}
