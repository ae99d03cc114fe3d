"""The fork server: a clean, single-threaded process with numpy imported that forks workers.

It is started once, before the first worker, and then forks a worker in milliseconds. The main
process itself is never forked, because it may have threads, locks held by them, and accelerators.

The main process sends requests over a socket. The fork server keeps a copy of each worker's socket.
When a worker dies, it shuts the socket down, so that the main process reads an end-of-file at once,
even if a grandchild still has the socket open. When the main process closes its end, the fork
server gives the worker a moment to exit and then kills it. When the main process is gone, the fork
server ends all workers and itself.
"""

import contextlib
import ctypes
import errno
import gc
import importlib
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import warnings
from array import array
from dataclasses import dataclass
from typing import NoReturn

from wholegrain._workers.local import process
from wholegrain._workers.local.channel import (
    DROP,
    EXIT_CODE,
    FORK,
    KEEP,
    REPLY,
    REQUEST,
    SIZE,
    UNKNOWN,
)

_GRACE_S = 0.5
_MAX_REMEMBERED = 4096
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@dataclass(frozen=True)
class _Child:
    pid: int
    socket: socket.socket


class ForkServer:
    """Forks workers on request, and reports how they ended."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}
        self._exit_codes: dict[int, int] = {}
        self._start_errors: dict[int, int] = {}
        self._kept: process.Kept = {}
        self._deadlines: dict[int, float] = {}
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._wakeup, wakes = socket.socketpair()
        self._wakeup.setblocking(False)
        wakes.setblocking(False)
        self._wakes = wakes
        self._poller.register(self._wakeup, select.POLLIN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        # One descriptor is needed per worker, so raise the soft limit to the hard limit.
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._limits[1], self._limits[1]))
        self._parent = -1
        # End-of-file is not sufficient: children that the user forked may have the socket open.
        with contextlib.suppress(AttributeError, OSError):
            self._parent = os.pidfd_open(parent)
            self._poller.register(self._parent, select.POLLIN)
        if os.getppid() != parent:
            os._exit(0)

    def serve(self) -> NoReturn:
        """Answer requests until the main process is gone."""
        while True:
            timeout = None
            if self._deadlines:
                timeout = max(0.0, min(self._deadlines.values()) - time.monotonic()) * 1000
            for descriptor, events in self._poller.poll(timeout):
                if descriptor == self._control.fileno():
                    self._answer()
                elif descriptor == self._wakeup.fileno():
                    with contextlib.suppress(BlockingIOError):
                        self._wakeup.recv(4096)
                elif descriptor == self._parent:
                    self._end()
                elif events & (select.POLLHUP | select.POLLRDHUP | select.POLLERR):
                    self._notice_hangup(descriptor)
            self._reap()
            self._kill_late()

    def _answer(self) -> None:
        try:
            data, ancillary, _, _ = self._control.recvmsg(
                REQUEST.size, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            data, ancillary = b"", []
        if not data:
            self._end()
        request, serial, number = REQUEST.unpack(data)
        received = array("i")
        for _, _, content in ancillary:
            received.frombytes(content[: received.itemsize])
        if request == FORK:
            if received:
                self._fork(number, socket.socket(fileno=received[0]))
            else:  # No descriptor was left to receive the socket.
                self._remember(self._start_errors, number, errno.EMFILE)
        elif request == EXIT_CODE:
            code = self._exit_code(number)
            error = self._start_errors.pop(number, 0)
            with contextlib.suppress(ConnectionError):
                self._control.send(REPLY.pack(serial, code, error))
        elif request == KEEP:
            if received:
                self._keep(number, received[0])
        elif request == DROP:
            self._kept.pop(number, None)

    def _fork(self, number: int, sock: socket.socket) -> None:
        # Otherwise every worker would print again what modules printed during import.
        if sys.stdout is not None:  # None if it is closed in the main process.
            sys.stdout.flush()
        try:
            with warnings.catch_warnings():
                # numpy handles a fork of its own threads.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            self._remember(self._start_errors, number, error.errno or errno.EAGAIN)
            sock.close()
            return
        if pid == 0:
            self._become_worker(sock)
        self._children[number] = _Child(pid, sock)
        self._poller.register(sock, select.POLLRDHUP)

    def _become_worker(self, sock: socket.socket) -> NoReturn:
        try:
            parent = os.getppid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _prctl(_PR_SET_NAME, b"wholegrain")
            if os.getppid() != parent:
                os._exit(1)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            process.use_one_heap()
            for other in (self._control, self._wakeup, self._wakes):
                other.close()
            for child in self._children.values():
                child.socket.close()
            if self._parent >= 0:
                os.close(self._parent)
            process.run(sock, self._kept)
        finally:
            os._exit(1)

    def _notice_hangup(self, descriptor: int) -> None:
        """Give a worker whose consumer is gone a moment to exit by itself."""
        for number, child in self._children.items():
            if child.socket.fileno() == descriptor:
                self._poller.unregister(descriptor)
                self._deadlines[number] = time.monotonic() + _GRACE_S

    def _kill_late(self) -> None:
        now = time.monotonic()
        for number in [number for number, at in self._deadlines.items() if at <= now]:
            del self._deadlines[number]
            os.kill(self._children[number].pid, signal.SIGKILL)

    def _reap(self) -> None:
        for number, child in list(self._children.items()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._bury(number, status)

    def _bury(self, number: int, status: int) -> None:
        child = self._children.pop(number)
        if self._deadlines.pop(number, None) is None:
            # The consumer does not know yet, and will request the exit code.
            self._remember(self._exit_codes, number, os.waitstatus_to_exitcode(status))
            with contextlib.suppress(KeyError, OSError):
                self._poller.unregister(child.socket)
            with contextlib.suppress(OSError):
                child.socket.shutdown(socket.SHUT_RDWR)
        child.socket.close()

    @staticmethod
    def _remember(numbers: dict[int, int], number: int, value: int) -> None:
        numbers[number] = value
        while len(numbers) > _MAX_REMEMBERED:
            del numbers[next(iter(numbers))]

    def _exit_code(self, number: int) -> int:
        """Return how a worker ended. Kill it if it has only closed its socket."""
        if number in self._children:
            os.kill(self._children[number].pid, signal.SIGKILL)
            _, status = os.waitpid(self._children[number].pid, 0)
            self._bury(number, status)
        return self._exit_codes.pop(number, UNKNOWN)

    def _keep(self, number: int, descriptor: int) -> None:
        """Create the `bytes` and `bytearray` objects of a program, which later workers inherit."""
        objects: list[bytes | bytearray] = []
        # If this fails, the worker that needs the objects raises an error.
        with contextlib.suppress(OSError, ValueError, MemoryError):
            with open(descriptor, "rb", buffering=0) as file:
                [count] = SIZE.unpack(file.read(SIZE.size))
                sizes = struct.unpack(f"<{count}q", file.read(SIZE.size * count))
                with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                    start = SIZE.size * (1 + count)
                    for size in sizes:
                        one = content[start : start + abs(size)]
                        objects.append(one if size >= 0 else bytearray(one))
                        start += abs(size)
            self._kept[number] = objects

    def _end(self) -> NoReturn:
        """End all workers and this process."""
        for child in self._children.values():
            with contextlib.suppress(OSError):
                child.socket.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _GRACE_S
        ended = select.poll()
        ended.register(self._wakeup, select.POLLIN)
        self._reap()
        while self._children and ended.poll(max(0.0, deadline - time.monotonic()) * 1000):
            with contextlib.suppress(BlockingIOError):
                self._wakeup.recv(4096)
            self._reap()
        for child in self._children.values():
            os.kill(child.pid, signal.SIGKILL)
        os._exit(0)


def _prctl(option: int, value: int | bytes) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def serve(parent: str, preload: str) -> NoReturn:
    """Run the fork server. Its socket for requests is the standard input.

    Args:
        parent: The process id of the main process.
        preload: The modules to import before the first fork, separated by commas.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv[:] = [""]
    _close_inherited()
    server = ForkServer(_take_socket(), int(parent))
    _prctl(_PR_SET_NAME, b"wholegrain")
    for name in preload.split(","):
        with contextlib.suppress(Exception):  # A worker that needs the module raises the error.
            importlib.import_module(name)
    # These objects are never garbage. Collections would only take time and, because they write to
    # object headers, copy pages that workers share (copy-on-write).
    gc.freeze()
    server.serve()


def _close_inherited() -> None:
    """Close descriptors inherited from the main process, which are meant for its other children."""
    with contextlib.suppress(FileNotFoundError):  # Without /proc they stay open.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    os.close(int(name))


def _take_socket() -> socket.socket:
    nothing = os.open(os.devnull, os.O_RDWR)
    sock = socket.socket(fileno=os.dup(0))
    os.dup2(nothing, 0)
    os.close(nothing)
    return sock
