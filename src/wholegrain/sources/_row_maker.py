"""Rows as dicts, out of the tuples of their values."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]


def make_rows(names: Sequence[str], values: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Return a row for each tuple, which has a value for each of the names."""
    return _row_maker(tuple(names))(values)


@functools.lru_cache(maxsize=64)
def _row_maker(names: tuple[str, ...]) -> Callable[[Iterable[tuple[Any, ...]]], list[Row]]:
    """Return a function that makes rows with these names.

    It is compiled from source, as dataclasses are: a dict whose keys are written down is made
    several times faster than `dict(zip(names, row))`.
    """
    if not names:
        return lambda values: [{} for _ in values]
    variables = [f"value_{number}" for number in range(len(names))]
    row = ", ".join(
        f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True)
    )
    source = f"lambda values: [{{{row}}} for {', '.join(variables)}, in values]"
    maker: Callable[[Iterable[tuple[Any, ...]]], list[Row]] = eval(source)
    return maker
