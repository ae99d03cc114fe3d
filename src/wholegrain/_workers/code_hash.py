"""A hash of a pipeline, its data in memory and the code of its functions and classes."""

import hashlib
import io
import pickle
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from wholegrain._workers.pickling import PROTOCOL

_CONSTANTS = (int, float, complex, str, bytes, type(None))
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def code_hash(value: object) -> str:
    """Return a hash of `value` that changes if its data or its code change.

    The code is that of the functions and classes that it refers to, and of those that they use by
    name, if they are in the user's own modules. Installed libraries are known by name alone.

    Raises:
        Exception: If `value` cannot be pickled.
    """
    found = hashlib.sha256()

    def add(buffer: pickle.PickleBuffer) -> None:
        found.update(buffer.raw())

    file = io.BytesIO()
    _Pickler(file, PROTOCOL, buffer_callback=add).dump(value)
    found.update(file.getbuffer())
    return found.hexdigest()[:16]


class _Code:
    """Stands for a function or a class."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions and classes of the user as their code, to be hashed and never loaded."""

    def persistent_id(self, obj: Any) -> Any:
        # The order of a set of strings is another one in each process.
        if type(obj) in (set, frozenset):
            return type(obj).__name__, sorted(map(code_hash, obj))
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and _is_own(obj.__module__):
            # As a state, because it may refer to the function itself.
            return _Code, (), _of_function(obj)
        if isinstance(obj, type) and _is_own(obj.__module__):
            return _Code, (), _of_class(obj)
        return super().reducer_override(obj)


def _is_own(module: str | None) -> bool:
    """Return whether a module is the user's, and not an installed one."""
    if module is None or module == "__main__":
        return True
    if module.partition(".")[0] in {"wholegrain", "builtins"}:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not file.startswith(_LIBRARIES)


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    names = set(_names(function.__code__))
    used = {name: function.__globals__[name] for name in names if name in function.__globals__}
    return {
        "name": function.__qualname__,
        "code": _of_code(function.__code__),
        "defaults": (function.__defaults__, function.__kwdefaults__),
        "closure": [cell.cell_contents for cell in function.__closure__ or ()],
        "used": sorted(_known(used), key=lambda item: item[0]),
    }


def _of_class(kind: type) -> dict[str, Any]:
    members = {name: getattr(member, "__func__", member) for name, member in vars(kind).items()}
    members = {
        name: member.fget if isinstance(member, property) else member
        for name, member in members.items()
        if name not in ("__module__", "__doc__", "__firstlineno__", "__static_attributes__")
    }
    return {
        "name": kind.__qualname__,
        "bases": kind.__bases__,
        "members": sorted(_known(members), key=lambda item: item[0]),
    }


def _known(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield those that are code or constants. Anything else may be large, or not pickle."""
    for name, value in values.items():
        if isinstance(value, (*_CONSTANTS, types.FunctionType, type)):
            yield name, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _of_code(code: types.CodeType) -> Any:
    """Return what a function does, without where it is written."""
    constants = [
        _of_code(constant)
        if isinstance(constant, types.CodeType)
        else sorted(map(repr, constant))
        if isinstance(constant, frozenset)
        else repr(constant)
        for constant in code.co_consts
    ]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_flags
