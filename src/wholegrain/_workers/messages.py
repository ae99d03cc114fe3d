"""The messages between workers and the consumer of their elements."""

from dataclasses import dataclass

from wholegrain._workers.startup import Call

# From the consumer to a worker.
TAKEN, REPOSITION, NUDGE, SPAN, CANCEL = range(5)
# From a worker to the consumer. Backends may use negative numbers for messages of their own.
HELLO, PLAIN, RECORDS, END, ERROR, REPORT, BEGUN = range(7)

COUNTER = "next_index"
"""A state with only this key is sent as its integer value."""

# How far a worker runs ahead if elements are small.
MAX_AHEAD = 1024
MAX_AHEAD_BYTES = 1 << 21
# The consumer acknowledges elements in groups of this size, because the worker's listening thread
# takes the GIL from the producing thread for every message.
TAKEN_TOGETHER = MAX_AHEAD // 4
TAKEN_TOGETHER_BYTES = MAX_AHEAD_BYTES // 4


@dataclass(kw_only=True)
class Job:
    """The settings that a worker needs besides its program."""

    index: int
    count: int
    buffer_size: int
    init_fn: bytes | None
    generation: int
    state: bytes | None
    singly: int
    """How many elements are made and sent one by one before messages may hold several.

    Not 0 after a death. The worker announces each of them with BEGUN, and reads nothing ahead."""
    startup: tuple[Call, ...]
    """The functions to call first; see `startup`."""
