"""The main function of a worker process on this machine: environment, socket, shared memory."""

import contextlib
import ctypes
import faulthandler
import functools
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

from wholegrain._workers import program, worker
from wholegrain._workers.local import memory
from wholegrain._workers.local.channel import RETIRED, SEGMENT, Channel, Start
from wholegrain._workers.local.ring import Arena
from wholegrain._workers.outbox import leave
from wholegrain._workers.transport import INLINE_BYTES, Encoder

Kept = dict[int, list[bytes | bytearray]]
"""Objects of programs by id, which workers inherit from the fork server."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def use_one_heap() -> None:
    """Let all threads of this process use one malloc arena, unless a `MALLOC_*` variable is set.

    That takes half the memory, and no page faults for every batch. With an arena per thread, memory
    that one thread allocates and another one frees can only be reused by the first. A worker that
    reads ahead in a thread then needs twice the memory. Also, glibc returns a freed batch of large
    elements to the system at once, so the next batch page-faults.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(AttributeError, OSError):  # The C library is not glibc.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # The largest value that glibc adapts it to itself.
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def run(sock: socket.socket, kept: Kept) -> NoReturn:
    """Run a worker until the consumer is gone.

    Args:
        sock: The connection to the consumer.
        kept: Objects of programs, inherited from the fork server.
    """
    channel = Channel(sock)
    try:
        start: Start = channel.receive()
        _adopt(start)
        if start.has_crash_file:
            faulthandler.enable(channel.descriptors.popleft())
    except (EOFError, OSError):
        leave(0)  # The consumer is gone.
    except BaseException:
        traceback.print_exc()
        leave(1)
    link = _Link(channel)
    arena = Arena(start.memory_kind, start.memory_name, link.announce, link.retire)
    inline_bytes = max(INLINE_BYTES, start.min_shm_size)
    worker.run(
        start.job,
        link.send,
        channel.receive,
        functools.partial(_load, start.program, channel, kept),
        lambda: Encoder(arena, inline_bytes),
        arena.forget_names,
    )


def run_spawned(descriptor: str) -> NoReturn:
    """Run a worker in a spawned interpreter.

    Args:
        descriptor: The socket's descriptor; empty on Windows, where stdin carries the socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "win32":
        sock = socket.fromshare(sys.stdin.buffer.read())
    else:
        sock = socket.socket(fileno=int(descriptor))
    run(sock, {})


def _adopt(start: Start) -> None:
    """Take over the environment, `sys.path`, `sys.argv` and directory of the main process."""
    for name in os.environ.keys() - start.environ.keys():
        del os.environ[name]
    os.environ.update(start.environ)
    sys.path[:] = start.path
    sys.argv[:] = start.argv
    with contextlib.suppress(OSError):  # The directory does not exist for the main process either.
        os.chdir(start.directory)


class _Link:
    """Sends messages to the consumer, and announces segments of shared memory."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sending = threading.Lock()

    def send(self, message: Any, descriptors: tuple[int, ...] = ()) -> None:
        data = pickle.dumps(message, 5)
        with self._sending:
            self._channel.send(data, descriptors)

    def announce(self, number: int, size: int, count: int, handle: memory.Handle) -> None:
        if isinstance(handle, int):
            self.send((SEGMENT, number, size, count, None), (handle,))
            os.close(handle)
        else:
            self.send((SEGMENT, number, size, count, handle))

    def retire(self, number: int) -> None:
        self.send((RETIRED, number))


def _load(copy: program.ProgramCopy, channel: Channel, kept: Kept) -> program.Factory:
    content: Any
    objects: list[Any] | None = None
    if copy.inline is not None:
        content = bytearray(copy.inline)
    else:
        handle = copy.shared
        if isinstance(handle, int):
            handle = channel.descriptors.popleft()
        assert handle is not None
        content = memory.attach(handle, copy.nbytes, private=True)
    if copy.kept is not None:
        if copy.kept not in kept:
            raise MemoryError(
                "The process that starts workers has no memory for the large `bytes` and"
                " `bytearray` objects of the pipeline."
            )
        objects = kept[copy.kept]
    kept.clear()  # Otherwise the objects of other programs would stay in memory.
    return program.load(copy, content, objects)
