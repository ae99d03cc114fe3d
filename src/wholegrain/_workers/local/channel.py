"""What processes on this machine say to each other, and how.

Workers exchange pickled objects, accompanied by file descriptors. The fork server gets requests of
a few bytes.
"""

import os
import pickle
import select
import socket
import struct
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wholegrain._workers.local import memory
from wholegrain._workers.messages import Job
from wholegrain._workers.program import ProgramCopy

# To the fork server.
FORK, EXIT_CODE, KEEP, DROP = b"F", b"X", b"K", b"D"
REQUEST = struct.Struct("<cQQ")
"""The kind of request, its serial number, and the id of the worker or the program."""
REPLY = struct.Struct("<Qqq")
"""The request's serial number, the exit code of a worker, and the `errno` of a failed start."""
UNKNOWN = -(1 << 32)
SIZE = struct.Struct("<q")
"""Header of a program's objects: their number, then each size, negative for a `bytearray`."""

# From a local worker: a segment of shared memory was added, or is no longer used.
SEGMENT, RETIRED = -1, -2

_HEADER = 4
_INITIAL_BUFFER = 1 << 16
_MAX_DESCRIPTORS = 16
# Descriptors must not leak into child processes that the user starts.
_RECEIVE_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_CAN_PASS_DESCRIPTORS = hasattr(socket.socket, "sendmsg") and hasattr(socket, "SCM_RIGHTS")


@dataclass(kw_only=True)
class Start:
    """The first message to a worker."""

    job: Job
    program: ProgramCopy
    min_shm_size: int
    memory_kind: memory.Kind
    memory_name: str
    environ: dict[str, str]
    path: list[str]
    argv: list[str]
    directory: str
    has_crash_file: bool
    """Whether the message carries a file to which faulthandler writes if native code crashes."""


class Channel:
    """Sends and receives messages over a connected stream socket.

    One thread may receive while another sends. Callers serialise concurrent sends.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray(_INITIAL_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self.descriptors: deque[int] = deque()
        """Descriptors that came with messages, in the order they were sent."""
        self.has_lost_descriptors = False
        """Whether some could not be received, because the limit of open files was reached."""

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a pickled message.

        Raises:
            OSError: If the other process is gone.
        """
        header = len(data).to_bytes(_HEADER, "little")
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))]
            # Descriptors are sent with the first byte. A header alone is never sent partially.
            self._socket.sendmsg([header], rights)
            self._socket.sendall(data)
        elif len(data) < _INITIAL_BUFFER:
            self._socket.sendall(header + data)
        else:
            self._socket.sendall(header)
            self._socket.sendall(data)

    def has_message(self) -> bool:
        """Return whether a whole message has already been read from the socket."""
        available = self._end - self._start
        return available >= _HEADER and available >= _HEADER + self._next_size()

    def readable_within(self, timeout_s: float) -> bool:
        """Wait until there is something to receive; return False after `timeout_s`."""
        return bool(_wait_readable(self._socket, timeout_s))

    def receive(self, loads: Callable[..., Any] = pickle.loads) -> Any:
        """Wait for the next message and return it.

        Raises:
            EOFError: If the other process is gone.
        """
        while self._end - self._start < _HEADER:
            self._fill(_HEADER)
        size = self._next_size()
        while self._end - self._start < _HEADER + size:
            self._fill(_HEADER + size)
        first = self._start + _HEADER
        self._start = first + size
        return loads(self._view[first : self._start])

    def _next_size(self) -> int:
        return int.from_bytes(self._view[self._start : self._start + _HEADER], "little")

    def _fill(self, wanted: int) -> None:
        """Read more from the socket, after making room for `wanted` unread bytes."""
        kept = self._end - self._start
        if not kept and wanted <= len(self._buffer):
            self._start = self._end = 0
        elif self._start + wanted > len(self._buffer):
            larger = self._buffer
            if wanted > len(self._buffer):
                larger = bytearray(max(wanted, 2 * len(self._buffer)))
            larger[:kept] = self._view[self._start : self._end]
            self._buffer, self._view = larger, memoryview(larger)
            self._start, self._end = 0, kept
        try:
            count = self._receive_into(self._view[self._end :])
        except OSError as error:
            from wholegrain._core.interruption import is_interruption  # Rarely needed.

            if is_interruption(error):
                raise
            raise EOFError("The other process has gone.") from error
        if not count:
            raise EOFError("The other process has gone.")
        self._end += count

    def _receive_into(self, view: memoryview) -> int:
        if not _CAN_PASS_DESCRIPTORS:
            return self._socket.recv_into(view)
        count, ancillary, flags, _ = self._socket.recvmsg_into(
            [view], socket.CMSG_SPACE(4 * _MAX_DESCRIPTORS), _RECEIVE_FLAGS
        )
        if flags & socket.MSG_CTRUNC:
            self.has_lost_descriptors = True
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array("i")
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
                self.descriptors.extend(received)
                if not _RECEIVE_FLAGS:
                    for descriptor in received:
                        os.set_inheritable(descriptor, False)
        return count

    def close(self) -> None:
        """Shut the connection down for both sides, even if a forked child has it open."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # The other process has closed it already.
            from wholegrain._core.interruption import is_interruption  # Rarely needed.

            if is_interruption(error):
                raise
        self.detach()

    def detach(self) -> None:
        """Close the connection in this process only."""
        self._socket.close()
        while self.descriptors:
            os.close(self.descriptors.popleft())


def _wait_readable(sock: socket.socket, timeout_s: float) -> list[Any]:
    if not hasattr(select, "poll"):
        return select.select([sock], [], [], timeout_s)[0]
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return poller.poll(timeout_s * 1000)
