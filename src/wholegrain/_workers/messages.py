"""What workers and the process that uses their elements say to each other."""

from dataclasses import dataclass

from wholegrain._workers import program
from wholegrain._workers.local import memory

# From the consumer.
TAKEN, REPOSITION, NUDGE, STRETCH, CANCEL = range(5)
# To the consumer.
HELLO, PLAIN, RECORDS, END, ERROR, SEGMENT, RETIRED, REPORT = range(8)

COUNTER = "next_index"
"""A state with this key alone travels as its number."""

# How far a worker runs ahead where elements are small.
MAX_AHEAD = 1024
MAX_AHEAD_BYTES = 1 << 21
# After so many the consumer says what it took: each time, the thread that listens takes the
# interpreter's lock away from the one that works.
TAKEN_TOGETHER = MAX_AHEAD // 4
TAKEN_TOGETHER_BYTES = MAX_AHEAD_BYTES // 4


@dataclass(kw_only=True)
class Start:
    """The first message: all that a worker has to know."""

    index: int
    count: int
    buffer_size: int
    min_shm_size: int
    memory_kind: memory.Kind
    memory_name: str
    program: program.ProgramCopy
    init_fn: bytes | None
    generation: int
    state: bytes | None
    hold_after: int
    """How many elements are sent one by one before any wait for each other."""
    environ: dict[str, str]
    path: list[str]
    argv: list[str]
    directory: str
    has_crash_file: bool
    """Whether a file comes along for what Python says when native code crashes."""
    set_up: tuple[str, ...]
    """Functions to call first, by name."""
