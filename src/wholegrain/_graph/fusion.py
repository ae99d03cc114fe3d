"""Applies several functions of an element in one pass over a chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MAP, FILTER = "m", "f"
"""The kind of a function: MAP returns the new element, FILTER whether to keep the element."""

_LAST_LINE, _FIRST_LINE = 3, 5


@functools.cache
def one_pass(kinds: str) -> Callable[..., None]:
    """Return a function of a list of results, of elements, and of one function for each of `kinds`.

    It appends one result per element. An element that is missing or gets dropped yields None and
    does not reach the functions downstream. The source code of the pass is generated for each
    sequence of kinds, because a loop over the functions for each element would cost more than
    fusing saves. Each function is called on a line of its own, which `failed_step` relies on.
    """
    names = [f"f{number}" for number in range(len(kinds))]
    # A map at the end returns the element or None; a filter at the end only decides if it is None.
    last = f"{names[-1]}(x)" if kinds[-1] == MAP else "x"
    steps = []
    for name, kind in zip(names, kinds, strict=True):
        steps.append(f"and (x := {name}(x)) is not None" if kind == MAP else f"and {name}(x)")
    # Not a comprehension: if a function raises, the results before it are kept.
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
    # The file name makes tracebacks recognise the code as part of this library.
    exec(compile(source, f"{__file__}:{kinds}", "exec"), namespace)
    run: Callable[..., None] = namespace["run"]
    return run


def failed_step(error: BaseException) -> int:
    """Return which function of a pass raised `error`."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(f"{__file__}:"):
            return -1 if trace.tb_lineno == _LAST_LINE else trace.tb_lineno - _FIRST_LINE
        trace = trace.tb_next
    return -1  # Unknown: blame the last one.
