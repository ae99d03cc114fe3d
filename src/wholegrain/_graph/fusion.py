"""Applies several functions of an element in one pass over a chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MAP, FILTER, INDEXED, RANDOM, ANY = "m", "f", "i", "r", "a"
"""The kind of a function.

MAP returns the new element, FILTER whether to keep the element. INDEXED takes a position and the
element, RANDOM the element and a random generator. ANY is a MAP that is called for None as well.
"""

_PARAMETERS = {
    MAP: "f{0}",
    FILTER: "f{0}",
    INDEXED: "f{0}, first{0}",
    RANDOM: "f{0}, rng{0}, first{0}, step{0}",
    ANY: "f{0}",
}
_LINES = {
    MAP: "if x is not None: x = f{0}(x)",
    FILTER: "if x is not None and not f{0}(x): x = None",
    INDEXED: "if x is not None: x = f{0}(first{0} + position, x)",
    RANDOM: "if x is not None: x = f{0}(x, rng{0}(first{0} + position * step{0}))",
    ANY: "x = f{0}(x)",
}
_FIRST_LINE = 3


@functools.cache
def one_pass(kinds: str) -> Callable[..., None]:
    """Return a function of a list of results, of elements, and of arguments for each of `kinds`.

    The first argument for a kind is the user's function. For INDEXED follows the position of the
    first element, and for RANDOM a function that returns the generator of a position, the position
    of the first element, and the distance between positions.

    The pass appends one result per element. An element that is missing or gets dropped yields None
    and does not reach the functions downstream. The source code of the pass is generated for each
    sequence of kinds, because a loop over the functions for each element would cost more than
    fusing saves. Each function is called on a line of its own, which `failed_step` relies on.
    """
    parameters = ", ".join(_PARAMETERS[kind].format(at) for at, kind in enumerate(kinds))
    each = "position, x in enumerate(elements)" if {INDEXED, RANDOM} & {*kinds} else "x in elements"
    lines = [
        f"def run(results, elements, {parameters}):",
        f"  for {each}:",
        *("    " + _LINES[kind].format(at) for at, kind in enumerate(kinds)),
        # Append one by one: if a function raises, the results before it are kept.
        "    results.append(x)",
    ]
    namespace: dict[str, Any] = {}
    # The file name makes tracebacks recognise the code as part of this library.
    exec(compile("\n".join(lines), f"{__file__}:{kinds}", "exec"), namespace)
    run: Callable[..., None] = namespace["run"]
    return run


def failed_step(error: BaseException) -> int:
    """Return which function of a pass raised `error`."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(f"{__file__}:"):
            return max(-1, trace.tb_lineno - _FIRST_LINE)
        trace = trace.tb_next
    return -1  # Unknown: blame the last one.
