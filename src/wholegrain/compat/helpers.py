"""Internals of Grain that programs use, and that wholegrain itself does not need."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from wholegrain._core import tree

_C = TypeVar("_C", bound=Callable[..., Any])

# Without effect, because workers end immediately here.
_PROCESS_KILL_TIMEOUT_S = 25


class HashableWeakRef:
    """A hashable weak reference to any object: equal if it refers to the same object."""

    def __init__(self, obj: Any) -> None:
        self._weakref = weakref.ref(obj)
        self._obj_id = id(obj)

    def __call__(self) -> Any:
        return self._weakref()

    def __hash__(self) -> int:
        return self._obj_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableWeakRef) and self._obj_id == other._obj_id


class TraceAnnotation:
    """Names a part of a program for a profiler; without effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def is_enabled() -> bool:
    """Return False: Grain's profiler does not exist here."""
    return False


def run_with_traceback_filter(fun: _C) -> _C:
    """Return the function unchanged: the run filters its tracebacks."""
    return fun


def assert_same_structure(a: Any, b: Any) -> None:
    """Raise an AssertionError unless two trees have the same containers."""
    try:
        tree.map_leaves(lambda *leaves: None, a, b)
        tree.map_leaves(lambda *leaves: None, b, a)
    except tree.StructureMismatchError as error:
        raise AssertionError(f"The two structures don't match: {error}") from None


def unflatten_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Return a tree like `structure` with other leaves."""
    values = list(flat_sequence)
    count = len(tree.leaves(structure))
    if len(values) != count:
        raise ValueError(f"Got {len(values)} leaves for a structure with {count} leaves.")
    remaining = iter(values)
    return tree.map_leaves(lambda leaf: next(remaining), structure)
