"""The program of workers: a factory of iterators, pickled once for all of them.

The pickle of a pipeline is small, but its arrays and `bytes` may be large. They are pickled out of
band and not copied into each worker: all workers map one copy in shared memory. The mapping is
private (copy-on-write), so a worker that writes into such an array does not affect the others.
"""

import pickle
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from wholegrain._workers.layout import aligned
from wholegrain._workers.local import memory
from wholegrain._workers.pickling import PROTOCOL, ByValuePickler

_OUT_OF_BAND_BYTES = 1 << 12
_INLINE_BYTES = 1 << 16

Large = memoryview | bytes | bytearray
"""What is pickled out of band: the memory of an array, or a whole `bytes` or `bytearray`."""

# The opcodes that precede the content of large `bytes` and `bytearray` objects in a pickle. We
# replace them by NEXT_BUFFER, which makes the unpickler take the object from its buffers.
_OPCODES: dict[type, tuple[tuple[bytes, int], ...]] = {
    bytes: ((pickle.BINBYTES, 4), (pickle.BINBYTES8, 8)),
    bytearray: ((pickle.BYTEARRAY8, 8),),
}
_NEXT_BUFFER = pickle.NEXT_BUFFER


class WorkerIterator(Protocol):
    """The iterator that a worker runs.

    It may have more methods:

    - `next_into(empty)` is called instead of `__next__`. `empty(shape, dtype)` returns an
      uninitialised array in shared memory, where the consumer reads it without another copy.
    - `take(count)`, `put_back(count)` and `pass_over(count)` are called too if `takes_chunks` is
      true. `take` returns up to `count` of the next elements, none at the end; `put_back` undoes
      the last of them, and `pass_over` moves over elements that were put back.
    - `get_report()` returns anything that can be pickled. It is called a few times per second and
      at the end, and before each message if `reports_each_message` is true. The last result is
      `RemoteIterator.report` in the main process.
    """

    def __next__(self) -> Any: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


Factory = Callable[[int, int], WorkerIterator]
"""Makes the iterator of worker `i` of `n`."""


@dataclass(frozen=True)
class Part:
    """Something that was pickled out of band.

    Args:
        nbytes: The size.
        kind: `memoryview` for the memory of an array, else the class of the object.
    """

    nbytes: int
    kind: type

    @property
    def is_object(self) -> bool:
        """Whether it is an object itself, not the memory that an array views."""
        return self.kind is not memoryview


@dataclass(frozen=True)
class ProgramCopy:
    """Describes where a worker finds a program.

    Args:
        pickle_nbytes: The size of the pickle.
        parts: What was pickled out of band.
        inline: The whole program, sent in the message.
        shared: Shared memory with the program, without its objects if `kept` is given.
        kept: The id of the objects, which the worker inherits from the fork server.
    """

    pickle_nbytes: int
    parts: tuple[Part, ...]
    inline: bytes | None = None
    shared: memory.Handle | None = None
    kept: int | None = None

    @property
    def nbytes(self) -> int:
        """The size of the copy, without objects that the worker inherits."""
        return aligned(self.pickle_nbytes) + sum(
            aligned(part.nbytes) for part in self.parts if self.kept is None or not part.is_object
        )


class Program:
    """A packed factory. Any number of workers may be started from it, at any time.

    It refers to the arrays of the pipeline without copying them. Do not change them in place while
    workers may still be started.
    """

    def __init__(self, chunks: list[bytes], large: list[Large]) -> None:
        self._chunks = chunks
        self._large = large
        self.pickle_nbytes = sum(map(len, chunks))
        self.parts = tuple([Part(len(one), type(one)) for one in large])
        self.nbytes = aligned(self.pickle_nbytes) + sum(aligned(part.nbytes) for part in self.parts)
        """The size of a whole copy."""
        self.inline: bytes | None = None
        """A copy that is sent in a message, if the program is small."""
        if self.nbytes <= _INLINE_BYTES:
            self.inline = self._joined()

    @classmethod
    def pack(cls, factory: Factory) -> "Program":
        """Pickle `factory` by value, with large objects out of band.

        Raises:
            Exception: Any exception that pickling raises, with a note.
        """
        file = _Chunks()

        def keep(buffer: pickle.PickleBuffer) -> bool:
            data = buffer.raw()
            if len(data) < _OUT_OF_BAND_BYTES:
                return True
            file.large.append(data)
            return False

        try:
            ByValuePickler(file, PROTOCOL, buffer_callback=keep).dump(factory)
        except Exception as error:
            error.add_note(
                "Worker processes get a copy of the pipeline, so everything in it has to be"
                " picklable: sources, functions, and what the functions refer to."
            )
            raise
        return cls(file.chunks, file.large)

    @property
    def objects(self) -> list[bytes | bytearray]:
        """The `bytes` and `bytearray` objects that were pickled out of band."""
        return [one for one in self._large if not isinstance(one, memoryview)]

    @property
    def nbytes_without_objects(self) -> int:
        """The size of a copy without `objects`."""
        return self.nbytes - sum(aligned(part.nbytes) for part in self.parts if part.is_object)

    def copy_at(
        self,
        *,
        inline: bytes | None = None,
        shared: memory.Handle | None = None,
        kept: int | None = None,
    ) -> ProgramCopy:
        """Describe where workers find a copy."""
        return ProgramCopy(self.pickle_nbytes, self.parts, inline, shared, kept)

    def copy_inline(self) -> ProgramCopy:
        """Return a copy with everything in the message, however large."""
        return self.copy_at(inline=self.inline or self._joined())

    def _joined(self) -> bytes:
        content = bytearray(self.nbytes)
        for start, piece in self.pieces():
            content[start : start + len(piece)] = piece
        return bytes(content)

    def pieces(self, *, objects: bool = True) -> list[tuple[int, Any]]:
        """Return the parts of a copy, with or without objects, each with its offset."""
        pieces: list[tuple[int, Any]] = []
        start = 0
        for chunk in self._chunks:
            pieces.append((start, chunk))
            start += len(chunk)
        start = aligned(start)
        for one in self._large:
            if objects or isinstance(one, memoryview):
                pieces.append((start, one))
                start += aligned(len(one))
        return pieces


class _Chunks:
    """A file that keeps what is written to it, without joining or copying large pieces.

    `pickle` writes the content of a large `bytes` or `bytearray` in a call of its own, after the
    opcode and the length. The content is then kept in `large`, and the opcode is replaced by
    NEXT_BUFFER, as for the memory of arrays.
    """

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.large: list[Large] = []

    def write(self, data: Any) -> int:
        if not self._take_out(data):
            self.chunks.append(data if type(data) is bytes else bytes(data))
        return len(data)

    def _take_out(self, data: Any) -> bool:
        if len(data) < _OUT_OF_BAND_BYTES or not self.chunks:
            return False
        for opcode, width in _OPCODES.get(type(data), ()):
            head = opcode + len(data).to_bytes(8, "little")[:width]
            if len(data) < 1 << (8 * width) and self.chunks[-1].endswith(head):
                self.chunks[-1] = self.chunks[-1][: -len(head)] + _NEXT_BUFFER
                self.large.append(data)
                return True
        return False


def load(copy: ProgramCopy, content: Any, objects: Sequence[Any] | None = None) -> Factory:
    """Return the factory of a program. Its arrays view `content`.

    Args:
        copy: Describes the copy.
        content: The memory with the copy.
        objects: The objects of the program, if they are not in `content`.
    """
    data = np.frombuffer(content, np.uint8)
    factory: Factory = pickle.loads(
        data[: copy.pickle_nbytes].data, buffers=_handed_over(copy, data, objects)
    )
    return factory


def _handed_over(copy: ProgramCopy, data: Any, objects: Sequence[Any] | None) -> Iterator[Any]:
    """Yield what was pickled out of band, in the order of the pickle."""
    ready = None if objects is None else iter(objects)
    start = aligned(copy.pickle_nbytes)
    for part in copy.parts:
        if part.is_object and ready is not None:
            yield next(ready)
            continue
        view = data[start : start + part.nbytes]
        start += aligned(part.nbytes)
        yield part.kind(view) if part.is_object else view


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
