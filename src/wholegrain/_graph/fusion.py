"""Functions of elements, one after the other, in one pass over a chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MAP, FILTER = "m", "f"
"""What a function is for: its result is the new element, or says whether to keep the element."""

_LAST_LINE, _FIRST_LINE = 3, 5


@functools.cache
def one_pass(kinds: str) -> Callable[..., None]:
    """Return a function of a list of results, of elements, and of one function for each of `kinds`.

    It appends a result for each element. An element that is missing, or goes missing on the way,
    is None there and does not reach the functions downstream. The pass is written out in Python
    for each sequence of kinds: going through a list of functions for each element would cost more
    than it saves. Each function is called on a line of its own, for `failed_step`.
    """
    names = [f"f{number}" for number in range(len(kinds))]
    # The last function's result is the element, missing or not; a filter's says whether it is.
    last = f"{names[-1]}(x)" if kinds[-1] == MAP else "x"
    steps = []
    for name, kind in zip(names, kinds, strict=True):
        steps.append(f"and (x := {name}(x)) is not None" if kind == MAP else f"and {name}(x)")
    # Not a comprehension: if a function raises, what was made before is kept.
    lines = [
        f"def run(results, elements, {', '.join(names)}):",
        "    for x in elements: results.append(",
        last,
        "if x is not None",
        *(steps[:-1] if kinds[-1] == MAP else steps),
        "else None)",
    ]
    source = "\n".join(lines)
    namespace: dict[str, Any] = {}
    # Named after this file, so that a traceback knows it for ours.
    exec(compile(source, f"{__file__}:{kinds}", "exec"), namespace)
    run: Callable[..., None] = namespace["run"]
    return run


def failed_step(error: BaseException) -> int:
    """Return the number of the function of a pass that has raised `error`."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(f"{__file__}:"):
            return -1 if trace.tb_lineno == _LAST_LINE else trace.tb_lineno - _FIRST_LINE
        trace = trace.tb_next
    return -1  # Nothing is known: say it was the last one.
