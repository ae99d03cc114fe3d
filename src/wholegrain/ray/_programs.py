"""Pipelines in the object store: put there once, and read from there by all actors of a node."""

import weakref
from typing import Any

import numpy as np

from wholegrain._workers.program import Program, ProgramCopy

_stored: "weakref.WeakKeyDictionary[Program, tuple[str, Any]]" = weakref.WeakKeyDictionary()


def put_program(ray: Any, program: Program) -> tuple[ProgramCopy, Any]:
    """Return a description of a program, and its content or a reference to it.

    A large program is in the object store until it is deleted here.
    """
    if program.inline is not None:
        return program.copy_at(), program.inline
    job = ray.get_runtime_context().get_job_id()
    known = _stored.get(program)
    if known is None or known[0] != job:
        content = np.empty(program.nbytes, np.uint8)
        for start, piece in program.pieces():
            content[start : start + len(piece)] = np.asarray(memoryview(piece))
        known = _stored[program] = (job, ray.put(content))
    return program.copy_at(), known[1]
