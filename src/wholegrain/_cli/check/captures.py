"""Large objects that the functions of a pipeline capture."""

import functools
import inspect
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from wholegrain._cli.pipelines import is_pipeline
from wholegrain._core.names import kind_of
from wholegrain._graph.dataset import upstream

HEAVY_BYTES = 1_000_000


class Capture(NamedTuple):
    """An object that is pickled with a function."""

    stage: str
    name: str
    kind: str
    nbytes: int


def heavy_captures(dataset: Any) -> list[Capture]:
    """Return the large objects that functions of a pipeline capture, largest first."""
    found: dict[int, Capture] = {}
    for stage in reversed(upstream(dataset)):
        for value in vars(stage).values():
            for name, captured in _captured(value, depth=3):
                size = _nbytes(captured)
                if size >= HEAVY_BYTES:
                    kind = type(captured).__name__
                    found.setdefault(id(captured), Capture(str(stage), name, kind, size))
    return sorted(found.values(), key=lambda capture: -capture.nbytes)


def _captured(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield what a function, or an object with methods, captures, by name."""
    if depth == 0:
        return
    if isinstance(value, MethodType):
        yield from _captured(value.__func__, depth)
        value = value.__self__
    if isinstance(value, functools.partial):
        yield from _captured(value.func, depth - 1)
        given: dict[Any, Any] = {**dict(enumerate(value.args)), **value.keywords}
        for name, argument in given.items():
            yield f"the argument {name!r} of a partial", argument
            yield from _captured(argument, depth - 1)
    elif isinstance(value, FunctionType):
        if _is_found_by_name(value):
            return  # Other processes import it, with everything that it uses.
        variables = inspect.getclosurevars(value)
        names = {**variables.globals, **variables.nonlocals}
        for name, captured in names.items():
            if not isinstance(captured, (ModuleType, type)):
                yield f"the variable `{name}` of {value.__qualname__}", captured
                yield from _captured(captured, depth - 1)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not is_pipeline(value):
        if type(value).__module__.startswith("wholegrain.sources"):
            return
        for name, captured in vars(value).items():
            yield f"the attribute `{name}` of {kind_of(value)}", captured
            yield from _captured(captured, depth - 1)


def _is_found_by_name(function: FunctionType) -> bool:
    """Return whether another process can import the function by its module and name."""
    found: Any = sys.modules.get(function.__module__)
    if found is None or function.__module__ == "__main__":
        return False
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _nbytes(value: Any) -> int:
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if not isinstance(value, (dict, list, tuple, set)) and not hasattr(value, "__dict__"):
        return 0
    try:
        return len(cloudpickle.dumps(value))
    except Exception:
        return 0  # another check reports objects that cannot be pickled
