"""Functions of elements, one after the other, in one pass over a chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

MAP, FILTER = "m", "f"
"""What a function is for: its result is the new element, or says whether to keep the element."""


@functools.cache
def one_pass(kinds: str) -> Callable[..., Sequence[Any]]:
    """Return a function of a chunk of elements and of one function for each of `kinds`.

    An element that is missing, or goes missing on the way, is None in the result and does not
    reach the functions behind. The pass is written out in Python for each sequence of kinds:
    going through a list of functions for each element would cost more than it saves.
    """
    names = [f"f{number}" for number in range(len(kinds))]
    steps = ["(x := element) is not None"]
    for name, kind in zip(names, kinds, strict=True):
        steps.append(f"(x := {name}(x)) is not None" if kind == MAP else f"{name}(x)")
    source = (
        f"def run(elements, {', '.join(names)}):\n"
        f"    return [x if {' and '.join(steps)} else None for element in elements]\n"
    )
    namespace: dict[str, Any] = {}
    # Named after this file, so that a traceback knows it for ours.
    exec(compile(source, f"{__file__}:{kinds}", "exec"), namespace)
    run: Callable[..., Sequence[Any]] = namespace["run"]
    return run
