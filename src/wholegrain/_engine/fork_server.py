"""The process that workers are forked from: clean, single-threaded, with numpy imported.

It is started once, before the first worker, and then starts a worker in milliseconds. The main
process is never forked itself: it may have threads, locks held by them, and accelerators.

The main process sends requests over a socket. For each worker this process keeps a copy of the
worker's socket: when the worker dies it shuts the socket down, so that the main process reads an
end-of-file at once, even if a grandchild still holds it; and when the main process closes its
side it gives the worker a moment, then kills it. When the main process is gone, so are all.
"""

# Without the enumerations around it, which take longer to import than a worker to start.
import _socket as socket
import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import select
import sys
import time
import warnings
from array import array
from typing import TYPE_CHECKING, NoReturn

from wholegrain._engine import worker
from wholegrain._engine.requests import (
    ALLOCATE,
    DROP,
    EXIT_CODE,
    FORK,
    MAKE_OBJECTS,
    REPLY,
    REQUEST,
    UNKNOWN,
)

if TYPE_CHECKING:
    import signal

    from wholegrain._engine.quick_import import Finder
else:
    import _signal as signal  # For the same reason.

_GRACE_S = 0.5
_MAX_EXIT_CODES = 4096
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


class _Child:
    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.socket = sock


class ForkServer:
    """Starts workers on request, and tells how they ended."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}
        self._exit_codes: dict[int, int] = {}
        self._regions: dict[int, worker.Region] = {}
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
        self._parent = -1
        # End-of-file alone would not do: children that the user forked may hold the socket too.
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
        request, number, size = REQUEST.unpack(data)
        if request == FORK:
            received = array("i")
            received.frombytes(ancillary[0][2][: received.itemsize])
            self._fork(number, socket.socket(fileno=received[0]))
        elif request == EXIT_CODE:
            self._control.send(REPLY.pack(self._exit_code(number)))
        elif request == ALLOCATE:
            self._control.send(REPLY.pack(self._allocate(number, size)))
        elif request == MAKE_OBJECTS:
            self._control.send(REPLY.pack(self._make_objects(number, size)))
        elif request == DROP:
            self._regions.pop(number, None)

    def _fork(self, number: int, sock: socket.socket) -> None:
        # Else what a module printed when it was imported would be printed by every worker.
        if sys.stdout is not None:  # Closed in the main process.
            sys.stdout.flush()
        try:
            with warnings.catch_warnings():
                # numpy's own threads survive a fork: it takes care of them.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            print(f"wholegrain: cannot start a worker process: {error}", file=sys.stderr)
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
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _use_one_heap()
            for other in (self._control, self._wakeup, self._wakes):
                other.close()
            for child in self._children.values():
                child.socket.close()
            if self._parent >= 0:
                os.close(self._parent)
            worker.run(sock, self._regions)
        finally:
            os._exit(1)

    def _notice_hangup(self, descriptor: int) -> None:
        """Give a worker whose consumer has gone a moment to end by itself."""
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
            # The consumer does not know yet, and will ask.
            self._exit_codes[number] = os.waitstatus_to_exitcode(status)
            while len(self._exit_codes) > _MAX_EXIT_CODES:
                del self._exit_codes[next(iter(self._exit_codes))]
            with contextlib.suppress(KeyError, OSError):
                self._poller.unregister(child.socket)
            with contextlib.suppress(OSError):
                child.socket.shutdown(socket.SHUT_RDWR)
        child.socket.close()

    def _exit_code(self, number: int) -> int:
        """Return how a worker ended; make it end, if it only closed its socket."""
        if number in self._children:
            os.kill(self._children[number].pid, signal.SIGKILL)
            _, status = os.waitpid(self._children[number].pid, 0)
            self._bury(number, status)
        return self._exit_codes.pop(number, UNKNOWN)

    def _allocate(self, number: int, size: int) -> int:
        """Make memory that later workers inherit; return its address."""
        from wholegrain._engine.foreign_memory import address_of

        try:
            region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError):
            return 0
        with contextlib.suppress(AttributeError, OSError):
            region.madvise(mmap.MADV_HUGEPAGE)
        self._regions[number] = worker.Region(region)
        return address_of(region)

    def _make_objects(self, number: int, count: int) -> int:
        """Make `bytes` and `bytearray` that later workers inherit; return how many.

        Their sizes, negative for a `bytearray`, stand at the end of the memory of that number.
        Where each of them wants its content takes the place of its size. Nobody has looked at
        them before the main process puts it there.
        """
        from wholegrain._engine.foreign_memory import address_of

        region = self._regions[number]
        table = memoryview(region.memory)[-8 * count :].cast("q")
        try:
            objects = [bytes(size) if size > 0 else bytearray(-size) for size in table]
        except MemoryError:
            return 0
        for place, one in enumerate(objects):
            table[place] = address_of(one)
        _prefer_huge_pages(sorted(zip(table, map(len, objects), strict=True)))
        region.objects[:] = objects
        return count

    def _end(self) -> NoReturn:
        """End all workers, and this process."""
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


def _prefer_huge_pages(ranges: list[tuple[int, int]]) -> None:
    """Have memory come in huge pages, where the system can: `ranges` of it, in order."""
    # Neighbours together: each call may cut a mapping, of which there can be only so many.
    joined: list[tuple[int, int]] = []
    for start, nbytes in ranges:
        if joined and start - joined[-1][1] < mmap.PAGESIZE:
            joined[-1] = (joined[-1][0], start + nbytes)
        else:
            joined.append((start & -mmap.PAGESIZE, start + nbytes))
    with contextlib.suppress(AttributeError):
        madvise = ctypes.CDLL(None).madvise
        for start, end in joined:
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_HUGEPAGE)


def _use_one_heap() -> None:
    """Let all threads of this process take memory from one place, and keep what they let go of.

    With a heap for each, what the thread that reads ahead has made and another one let go of
    stays where only the first can use it again: twice the memory, and all of it fresh. And a batch
    of large elements, once they have been stacked, would be returned to the system every time.
    """
    if not any(name.startswith("MALLOC_") for name in os.environ):
        with contextlib.suppress(AttributeError, OSError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_ARENA_MAX, 1)
            mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # As large as it would become by itself.
            mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _prctl(option: int, value: int | bytes) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def serve(parent: str, preload: str, finder: "Finder") -> NoReturn:
    """Be the fork server of a process. Its socket for requests is the standard input.

    Args:
        parent: The number of the process.
        preload: Modules to import before the first fork, with commas between them.
        finder: Finds modules until then.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv[:] = [""]
    _close_inherited()
    server = ForkServer(_take_socket(), int(parent))
    _prctl(_PR_SET_NAME, b"wholegrain")
    for name in preload.split(","):
        with contextlib.suppress(Exception):  # If a worker needs it, it says what is wrong.
            importlib.import_module(name)
    finder.stop()
    # What is there now will not be garbage: looking for it takes time, and would unshare memory.
    gc.freeze()
    gc.enable()  # It was off while modules were imported, which makes that quicker.
    server.serve()


def _close_inherited() -> None:
    """Close what the main process left open for children: it is not for this one."""
    with contextlib.suppress(FileNotFoundError):  # No /proc here: then they stay open.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    os.close(int(name))


def _take_socket() -> socket.socket:
    nothing = os.open(os.devnull, os.O_RDWR)
    while nothing <= 2:  # Output that is closed: what is printed must not reach the socket.
        nothing = os.dup(nothing)
    sock = socket.socket(fileno=os.dup(0))
    os.dup2(nothing, 0)
    os.close(nothing)
    return sock
