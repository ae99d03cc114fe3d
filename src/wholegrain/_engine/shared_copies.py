"""Programs in memory that all workers see."""

import os
import threading
import weakref

from wholegrain._engine import memory
from wholegrain._engine.program import Program, ProgramCopy


class SharedCopies:
    """Copies of programs in shared memory, as long as the programs live."""

    def __init__(self, kind: memory.Kind) -> None:
        self._kind: memory.Kind = kind
        self._lock = threading.Lock()
        self._handles: weakref.WeakKeyDictionary[Program, memory.Handle] = (
            weakref.WeakKeyDictionary()
        )

    def copy(self, program: Program) -> tuple[ProgramCopy, list[int]]:
        """Return where workers find `program`, and descriptors to be sent along."""
        with self._lock:
            handle = self._handles.get(program)
            if handle is None:
                handle = memory.create_filled(self._kind, program.pieces(), program.nbytes)
                self._handles[program] = handle
                weakref.finalize(program, _let_go, handle, os.getpid())
        copy = program.copy_at(shared=handle)
        return copy, [handle] if isinstance(handle, int) else []


def _let_go(handle: memory.Handle, pid: int) -> None:
    if isinstance(handle, int):
        os.close(handle)
    elif pid == os.getpid():
        memory.forget(handle)
