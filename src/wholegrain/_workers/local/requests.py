"""What the main process, the fork server and workers on this machine say to each other."""

import struct
from dataclasses import dataclass

from wholegrain._workers.local import memory
from wholegrain._workers.messages import Job
from wholegrain._workers.program import ProgramCopy

# To the fork server.
FORK, EXIT_CODE, KEEP, DROP = b"F", b"X", b"K", b"D"
REQUEST = struct.Struct("<cQQ")
"""What is asked for, the number of the request, and that of the worker or the program."""
REPLY = struct.Struct("<Qqq")
"""The number of the request, how a worker ended, and why it could not be started (an `errno`)."""
UNKNOWN = -(1 << 32)
SIZE = struct.Struct("<q")
"""Before the objects of a program: how many, and the size of each, negative for a `bytearray`."""

# From a worker, besides what all workers say: a segment of shared memory came, or went.
SEGMENT, RETIRED = -1, -2


@dataclass(kw_only=True)
class Start:
    """The first message to a worker."""

    job: Job
    program: ProgramCopy
    min_shm_size: int
    memory_kind: memory.Kind
    memory_name: str
    environ: dict[str, str]
    path: list[str]
    argv: list[str]
    directory: str
    has_crash_file: bool
    """Whether a file comes along for what Python says when native code crashes."""
