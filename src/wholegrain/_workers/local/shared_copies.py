"""Programs in memory that all workers see."""

import threading
import weakref

from wholegrain._workers.local import memory
from wholegrain._workers.program import Program


class SharedCopies:
    """Copies of programs in shared memory, as long as the programs live.

    Args:
        kind: What kind of shared memory to use.
        objects: Whether the `bytes` of a program are in its copy.
    """

    def __init__(self, kind: memory.Kind, *, objects: bool) -> None:
        self._kind: memory.Kind = kind
        self._objects = objects
        self._lock = threading.Lock()
        self._copies: weakref.WeakKeyDictionary[Program, memory.Filled] = (
            weakref.WeakKeyDictionary()
        )

    def copy(self, program: Program) -> tuple[memory.Handle, list[int]]:
        """Return the handle of a copy of `program`, and descriptors to be sent along."""
        with self._lock:
            filled = self._copies.get(program)
            if filled is None:
                nbytes = program.nbytes if self._objects else program.nbytes_without_objects
                pieces = program.pieces(objects=self._objects)
                filled = self._copies[program] = memory.Filled(self._kind, pieces, nbytes)
        handle = filled.handle
        return handle, [handle] if isinstance(handle, int) else []

    def close(self) -> None:
        """Let go of all copies."""
        for filled in list(self._copies.values()):
            filled.close()
        self._copies.clear()
