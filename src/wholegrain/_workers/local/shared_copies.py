"""Copies of programs in shared memory."""

import threading
import weakref

from wholegrain._workers.local import memory
from wholegrain._workers.program import Program


class SharedCopies:
    """Copies of programs in shared memory, kept as long as the programs exist.

    Args:
        kind: The kind of shared memory to use.
        objects: Whether a copy includes the `bytes` objects of the program.
    """

    def __init__(self, kind: memory.Kind, *, objects: bool) -> None:
        self._kind: memory.Kind = kind
        self._objects = objects
        self._lock = threading.Lock()
        self._copies: weakref.WeakKeyDictionary[Program, memory.Filled] = (
            weakref.WeakKeyDictionary()
        )

    def copy(self, program: Program) -> tuple[memory.Handle, list[int]]:
        """Return the handle of a copy of `program`, and descriptors to send with it."""
        with self._lock:
            filled = self._copies.get(program)
            if filled is None:
                nbytes = program.nbytes if self._objects else program.nbytes_without_objects
                pieces = program.pieces(objects=self._objects)
                filled = self._copies[program] = memory.Filled(self._kind, pieces, nbytes)
        handle = filled.handle
        return handle, [handle] if isinstance(handle, int) else []

    def close(self) -> None:
        """Release all copies."""
        for filled in list(self._copies.values()):
            filled.close()
        self._copies.clear()
