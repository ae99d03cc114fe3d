"""What workers and the process that uses their elements say to each other."""

from dataclasses import dataclass

# From the consumer.
TAKEN, REPOSITION, NUDGE, SPAN, CANCEL = range(5)
# To the consumer. Backends may use negative numbers for messages of their own.
HELLO, PLAIN, RECORDS, END, ERROR, REPORT, BEGUN = range(7)

COUNTER = "next_index"
"""A state with this key alone travels as its number."""

# How far a worker runs ahead where elements are small.
MAX_AHEAD = 1024
MAX_AHEAD_BYTES = 1 << 21
# After so many the consumer says what it took: each time, the thread that listens takes the
# GIL away from the one that works.
TAKEN_TOGETHER = MAX_AHEAD // 4
TAKEN_TOGETHER_BYTES = MAX_AHEAD_BYTES // 4


@dataclass(kw_only=True)
class Job:
    """What a worker has to know besides its program."""

    index: int
    count: int
    buffer_size: int
    init_fn: bytes | None
    generation: int
    state: bytes | None
    singly: int
    """How many elements are sent one by one before any wait for each other.

    Not 0 after a death: then the worker also says when it begins the first one."""
    startup: tuple[str, ...]
    """Functions to call first, by name."""
