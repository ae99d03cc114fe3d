"""What workers run, packed once for all of them.

The pickle of a pipeline is small; the arrays and the `bytes` in it may be large. Those are not
copied into the pickle, nor into each worker: one copy lies in memory that all the workers see.
What one of them writes into such an array, it alone sees.
"""

import pickle
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
"""What the pickle leaves out: the memory of an array, or an object that is nothing but memory."""

# What stands in a pickle before the content of an object that is written by itself, and what
# stands there if the object is handed to the unpickler instead.
_OPCODES: dict[type, tuple[tuple[bytes, int], ...]] = {
    bytes: ((pickle.BINBYTES, 4), (pickle.BINBYTES8, 8)),
    bytearray: ((pickle.BYTEARRAY8, 8),),
}
_NEXT_BUFFER = pickle.NEXT_BUFFER


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


@dataclass(frozen=True)
class Part:
    """Something that the pickle left out.

    Args:
        nbytes: How much.
        kind: `memoryview` for the memory of an array; else what the object is.
    """

    nbytes: int
    kind: type

    @property
    def is_object(self) -> bool:
        """Whether it is an object, not only the memory that another object views."""
        return self.kind is not memoryview


@dataclass(frozen=True)
class ProgramCopy:
    """Where a worker finds a program.

    Args:
        pickle_nbytes: The size of the pickle.
        parts: What the pickle left out.
        inline: All of it, in the message.
        shared: Shared memory with all of it; without objects, if those are kept elsewhere.
        kept: The number of the objects, which the worker inherits.
    """

    pickle_nbytes: int
    parts: tuple[Part, ...]
    inline: bytes | None = None
    shared: memory.Handle | None = None
    kept: int | None = None

    @property
    def nbytes(self) -> int:
        """How much memory it takes, without objects that are kept elsewhere."""
        return aligned(self.pickle_nbytes) + sum(
            aligned(part.nbytes) for part in self.parts if self.kept is None or not part.is_object
        )


class Program:
    """A packed factory. Workers may be started from it at any time, any number of times.

    It refers to the arrays of the pipeline, and does not copy them: change none of them in place
    while workers may still be started.
    """

    def __init__(self, chunks: list[bytes], large: list[Large]) -> None:
        self._chunks = chunks
        self._large = large
        self.pickle_nbytes = sum(map(len, chunks))
        self.parts = tuple([Part(len(one), type(one)) for one in large])
        self.nbytes = aligned(self.pickle_nbytes) + sum(aligned(part.nbytes) for part in self.parts)
        """How much memory a copy takes."""
        self.inline: bytes | None = None
        """A copy that travels in a message, if the program is small."""
        if self.nbytes <= _INLINE_BYTES:
            self.inline = self._joined()

    @classmethod
    def pack(cls, factory: Factory) -> "Program":
        """Pickle `factory`, with what cannot be imported elsewhere, and without what is large.

        Raises:
            Exception: Whatever pickling raises, with a note.
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
        """What was left out and is an object itself."""
        return [one for one in self._large if not isinstance(one, memoryview)]

    @property
    def nbytes_without_objects(self) -> int:
        """How much memory the rest of a copy takes."""
        return self.nbytes - sum(aligned(part.nbytes) for part in self.parts if part.is_object)

    def copy_at(
        self,
        *,
        inline: bytes | None = None,
        shared: memory.Handle | None = None,
        kept: int | None = None,
    ) -> ProgramCopy:
        """Say where workers find a copy that was made."""
        return ProgramCopy(self.pickle_nbytes, self.parts, inline, shared, kept)

    def copy_inline(self) -> ProgramCopy:
        """Return a copy that has everything in it, however large."""
        return self.copy_at(inline=self.inline or self._joined())

    def _joined(self) -> bytes:
        content = bytearray(self.nbytes)
        for start, piece in self.pieces():
            content[start : start + len(piece)] = piece
        return bytes(content)

    def pieces(self, *, objects: bool = True) -> list[tuple[int, Any]]:
        """Return all parts of a copy, with or without objects, and at which byte they start."""
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

    Large `bytes` and `bytearray` are taken out of it: `pickle` writes them by themselves, behind a
    few bytes that say so. Instead of these it then says, as of the memory of arrays, that the
    object will be handed over.
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
    """Return the factory out of a copy of its program. Its arrays view `content`.

    Args:
        copy: What is in it.
        content: The memory with the copy.
        objects: The objects of the program, which are then not in `content`.
    """
    data = np.frombuffer(content, np.uint8)
    factory: Factory = pickle.loads(
        data[: copy.pickle_nbytes].data, buffers=_handed_over(copy, data, objects)
    )
    return factory


def _handed_over(copy: ProgramCopy, data: Any, objects: Sequence[Any] | None) -> Iterator[Any]:
    """Yield what the pickle left out, in its order."""
    ready = None if objects is None else iter(objects)
    start = aligned(copy.pickle_nbytes)
    for part in copy.parts:
        if part.is_object and ready is not None:
            yield next(ready)
            continue
        view = data[start : start + part.nbytes]
        start += aligned(part.nbytes)
        yield part.kind(view) if part.is_object else view
