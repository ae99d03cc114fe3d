"""One malloc arena per worker: half the memory, and no page faults for every batch.

With an arena for each thread, memory that one thread allocates and another one frees can only be
used again by the first. A worker that reads ahead in a thread then needs twice the memory. And
glibc returns a freed batch of large elements to the system at once, so the next one page-faults.
"""

import contextlib
import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def use_one_heap() -> None:
    """Let all threads of this process use one arena. Any `MALLOC_*` variable switches this off."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(AttributeError, OSError):  # Another C library than glibc.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # The most that glibc itself would raise it to.
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)
