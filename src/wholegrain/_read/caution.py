"""Whether this process may read ahead.

A worker that replaces a dead one may not, for a while: any element may have been the cause, and a
death has to show which one was being made. The flag is for the whole process, because a pipeline
may read ahead anywhere, and because such a process runs only one pipeline.
"""

_is_careful = False


def is_careful() -> bool:
    """Return whether only the next element may be made, and nothing after it."""
    return _is_careful


def set_careful(on: bool) -> None:
    """Allow reading ahead, or not. Set it before the pipeline is opened, and unset it once."""
    global _is_careful
    _is_careful = on
