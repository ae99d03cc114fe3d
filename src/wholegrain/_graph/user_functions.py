"""What users pass to transformations: a function, or an object of a class in `transforms`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from wholegrain._core.names import transform_name

# The arguments that the function of each kind of transformation receives.
_ARGUMENTS = {
    "map": ("element",),
    "filter": ("element",),
    "random_map": ("element", "rng"),
    "map_with_index": ("index", "element"),
    "flat_map": ("element",),
}
_METHODS = {
    "Map": "map",
    "Filter": "filter",
    "RandomMap": "random_map",
    "MapWithIndex": "map_with_index",
    "FlatMap": "flat_map",
    "Batch": "batch",
}


def method_or_function(transform: Any, base: str, method: str) -> Callable[..., Any]:
    """Return the method of a transformation object, or the function that was given.

    Args:
        transform: What the user passed.
        base: The name of the class in `transforms` that such objects derive from.
        method: The name of their method.
    """
    # If the module is not imported, no such objects exist, and a worker need not import it.
    transforms = sys.modules.get("wholegrain.transforms")
    if transforms is not None:
        if isinstance(transform, getattr(transforms, base)):
            function: Callable[..., Any] = getattr(transform, method)
            check_arguments(method, function, _ARGUMENTS[method])
            return function
        refuse_class(transform, method)
    if not callable(transform):
        raise TypeError(
            f"`{method}` needs a function, or an object of a class that is derived from"
            f" `transforms.{base}`, but got {transform!r}.{_other_method(transform)}"
        )
    check_arguments(method, transform, _ARGUMENTS[method])
    return transform  # type: ignore[no-any-return]


def check_flat_map(transform: Any, needs_fan_out: bool) -> None:
    """Raise if an object cannot split elements."""
    refuse_class(transform, "flat_map")
    if not hasattr(transform, "flat_map"):
        raise TypeError(
            "A flat map needs an object of a class that is derived from `transforms.FlatMap`, with"
            f" the method `flat_map(element)`, but got {transform!r}.{_other_method(transform)}"
        )
    check_arguments("flat_map", transform.flat_map, _ARGUMENTS["flat_map"])
    if needs_fan_out and not hasattr(transform, "max_fan_out"):
        raise TypeError(
            f"{transform_name(transform)} has to define the maximum number of parts of an element:"
            " give the class an attribute `max_fan_out`."
        )


def refuse_class(transform: Any, method: str) -> None:
    """Raise if `transform` is a class of transformations where an object of it is needed."""
    transforms = sys.modules.get("wholegrain.transforms")
    if transforms is None or not isinstance(transform, type):
        return
    if issubclass(transform, tuple(getattr(transforms, base) for base in _METHODS)):
        name = transform.__name__
        raise TypeError(
            f"`{method}` needs an object, but got the class {name} itself. Create an object:"
            f" `{name}(...)`, with parentheses."
        )


def _other_method(transform: Any) -> str:
    """Describe where to pass a transformation object of another kind."""
    transforms = sys.modules.get("wholegrain.transforms")
    for base, method in _METHODS.items() if transforms is not None else ():
        if isinstance(transform, getattr(transforms, base)):
            fluent = f"`ds.{method}(...)` or " if method in _ARGUMENTS and base != "FlatMap" else ""
            return f" It is a `transforms.{base}`, for {fluent}`ds.apply(...)`."
    return ""


def check_arguments(method: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Raise if a Python function does not accept the number of arguments.

    Other callables are not checked, because their signatures may differ from what they accept.
    """
    is_bound = isinstance(function, types.MethodType)
    plain = function.__func__ if is_bound else function
    if not isinstance(plain, types.FunctionType):
        return
    code = plain.__code__
    most = code.co_argcount - is_bound
    least = most - len(plain.__defaults__ or ())
    if code.co_flags & 0x04:  # It takes `*args`.
        most = sys.maxsize
    needs_keywords = code.co_kwonlyargcount > len(plain.__kwdefaults__ or ())
    if least <= len(arguments) <= most and not needs_keywords:
        return
    takes = ", ".join(code.co_varnames[is_bound : code.co_argcount + code.co_kwonlyargcount])
    raise TypeError(
        f"`{method}` calls its function as `f({', '.join(arguments)})`, but"
        f" {transform_name(function)} takes ({takes}).{_fitting_method(method, least, most)}"
    )


def _fitting_method(method: str, least: int, most: int) -> str:
    if method == "map" and least == 2 <= most:
        return (
            " `map_with_index` calls it with the index and the element, `random_map` with the"
            " element and a random generator. Bind other arguments with `functools.partial`."
        )
    return ""
