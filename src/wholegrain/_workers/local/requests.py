"""Messages between the main process, the fork server and workers on this machine."""

import struct
from dataclasses import dataclass

from wholegrain._workers.local import memory
from wholegrain._workers.messages import Job
from wholegrain._workers.program import ProgramCopy

# To the fork server.
FORK, EXIT_CODE, KEEP, DROP = b"F", b"X", b"K", b"D"
REQUEST = struct.Struct("<cQQ")
"""The kind of request, its serial number, and the id of the worker or the program."""
REPLY = struct.Struct("<Qqq")
"""The request's serial number, the exit code of a worker, and the `errno` of a failed start."""
UNKNOWN = -(1 << 32)
SIZE = struct.Struct("<q")
"""Header of a program's objects: their number, then each size, negative for a `bytearray`."""

# From a local worker: a segment of shared memory was added, or is no longer used.
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
    """Whether the message carries a file to which faulthandler writes if native code crashes."""
