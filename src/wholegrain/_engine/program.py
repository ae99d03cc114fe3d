"""What workers run, packed once for all of them.

The pickle of a pipeline is small; the arrays in it may be large. Those are not copied into the
pickle, nor into each worker: one copy lies in memory that all the workers see. What one of them
writes into such an array, it alone sees.
"""

import ctypes
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from wholegrain._engine import memory
from wholegrain._engine.layout import aligned
from wholegrain._engine.pickling import PROTOCOL, ByValuePickler

_OUT_OF_BAND_BYTES = 1 << 16
_INLINE_BYTES = 1 << 16
_MAX_PIECES = 512


class WorkerIterator(Protocol):
    """What a worker runs.

    It may have more methods:

    - `next_into(empty)` is called instead of `__next__`. `empty(shape, dtype)` is an uninitialised
      array in the memory where the consumer will read it, so what is put there is not copied.
    - `get_report()` returns anything that can be pickled. It is called about once a second and at
      the end, and what it returned last is `RemoteIterator.report` in the main process.
    """

    def __next__(self) -> Any: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


Factory = Callable[[int, int], WorkerIterator]
"""Makes the iterator of worker `i` of `n`."""


class ProgramCopy(NamedTuple):
    """Where a worker finds a program: in the message, in memory it inherits or in shared memory."""

    sizes: tuple[int, ...]
    inline: bytes | None = None
    region: int | None = None
    shared: memory.Handle | None = None


class Program:
    """A packed factory. Workers may be started from it at any time, any number of times.

    It refers to the arrays of the pipeline, and does not copy them: change none of them in place
    while workers may still be started.
    """

    def __init__(self, chunks: list[bytes], buffers: list[memoryview]) -> None:
        self._chunks = chunks
        self._buffers = buffers
        self.sizes = (sum(map(len, chunks)), *[len(buffer) for buffer in buffers])
        """The number of bytes of the pickle, and of each buffer that it left out."""
        self.nbytes = sum(map(aligned, self.sizes))
        """How much memory a copy takes."""
        self.inline: bytes | None = None
        """A copy that travels in a message, if the program is small."""
        if self.nbytes <= _INLINE_BYTES:
            content = bytearray(self.nbytes)
            for start, piece in self.pieces():
                content[start : start + len(piece)] = piece
            self.inline = bytes(content)

    @classmethod
    def pack(cls, factory: Factory) -> "Program":
        """Pickle `factory`, with what cannot be imported elsewhere, and without large arrays.

        Raises:
            Exception: Whatever pickling raises, with a note.
        """
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            data = buffer.raw()
            if len(data) < _OUT_OF_BAND_BYTES:
                return True
            buffers.append(data)
            return False

        stream = _Chunks()
        try:
            ByValuePickler(stream, PROTOCOL, buffer_callback=keep).dump(factory)
        except Exception as error:
            error.add_note(
                "Worker processes get a copy of the pipeline, so everything in it has to be"
                " picklable: sources, functions, and what the functions refer to."
            )
            raise
        return cls(stream.chunks, buffers)

    def pieces(self) -> list[tuple[int, Any]]:
        """Return all parts of a copy, each with the byte where it belongs."""
        pieces: list[tuple[int, Any]] = []
        start = 0
        for chunk in self._chunks:
            pieces.append((start, chunk))
            start += len(chunk)
        start = aligned(start)
        for buffer in self._buffers:
            pieces.append((start, buffer))
            start += aligned(len(buffer))
        return pieces


class _Chunks:
    """A file that keeps what is written to it, without joining or copying large pieces."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def write(self, data: Any) -> int:
        self.chunks.append(data if type(data) is bytes else bytes(data))
        return len(data)


def load(sizes: Sequence[int], content: Any) -> Factory:
    """Return the factory out of a copy of its program. Its arrays view `content`."""
    data = np.frombuffer(content, np.uint8)
    views = []
    start = 0
    for size in sizes:
        views.append(data[start : start + size])
        start += aligned(size)
    factory: Factory = pickle.loads(views[0].data, buffers=views[1:])
    return factory


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


def write_to_process(pid: int, address: int, program: Program) -> None:
    """Copy a program into the memory of another process.

    Raises:
        OSError: If the system does not allow that.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_writev", None)
    if function is None:
        raise OSError("This system cannot write to another process.")
    function.restype = ctypes.c_ssize_t
    pieces = [(_address(piece), len(piece), start) for start, piece in program.pieces()]
    for first in range(0, len(pieces), _MAX_PIECES):
        some = [piece for piece in pieces[first : first + _MAX_PIECES] if piece[1]]
        while some:
            ours = (_Piece * len(some))(*[_Piece(ours, nbytes) for ours, nbytes, _ in some])
            theirs = (_Piece * len(some))(*[_Piece(address + to, nbytes) for _, nbytes, to in some])
            count = ctypes.c_ulong(len(some))
            written = function(pid, ours, count, theirs, count, ctypes.c_ulong(0))
            if written <= 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            some = _behind(some, written)


def _behind(pieces: list[tuple[int, int, int]], written: int) -> list[tuple[int, int, int]]:
    """Return what is left to write."""
    left = []
    for ours, nbytes, to in pieces:
        done = min(written, nbytes)
        written -= done
        if done < nbytes:
            left.append((ours + done, nbytes - done, to + done))
    return left


def _address(piece: Any) -> int:
    address: int = np.frombuffer(piece, np.uint8).__array_interface__["data"][0]
    return address
