"""The memory of another process of the same user: reading and writing it, where that is allowed."""

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

_MAX_PIECES = 512

# Most of the time the system looks for memory, which it can do for several at once.
_MAX_THREADS = 4
_BYTES_AT_ONCE = 64 << 20


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


def write_to_process(pid: int, pieces: Sequence[tuple[int, Any]]) -> None:
    """Copy pieces of memory into another process, each to the address that stands before it.

    Raises:
        OSError: If the system does not allow that.
    """
    blocks = [
        (start + done, min(_BYTES_AT_ONCE, nbytes - done), to + done)
        for start, nbytes, to in [(address_of(data), len(data), to) for to, data in pieces]
        for done in range(0, nbytes, _BYTES_AT_ONCE)
    ]
    total = sum(nbytes for _, nbytes, _ in blocks)
    threads = min(_MAX_THREADS, os.cpu_count() or 1, total // _BYTES_AT_ONCE)
    if threads < 2:
        _copy("process_vm_writev", pid, blocks)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        shares = [blocks[first::threads] for first in range(threads)]
        list(pool.map(functools.partial(_copy, "process_vm_writev", pid), shares))


def read_from_process(pid: int, address: int, into: Any) -> None:
    """Copy memory of another process into a buffer.

    Raises:
        OSError: If the system does not allow that.
    """
    _copy("process_vm_readv", pid, [(address_of(into), len(into), address)])


def address_of(data: Any) -> int:
    """Return where the memory of an object lies."""
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address


def _copy(name: str, pid: int, pieces: list[tuple[int, int, int]]) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError("This system cannot reach the memory of another process.")
    function.restype = ctypes.c_ssize_t
    for first in range(0, len(pieces), _MAX_PIECES):
        some = [piece for piece in pieces[first : first + _MAX_PIECES] if piece[1]]
        while some:
            ours = (_Piece * len(some))(*[_Piece(ours, nbytes) for ours, nbytes, _ in some])
            theirs = (_Piece * len(some))(*[_Piece(theirs, nbytes) for _, nbytes, theirs in some])
            count = ctypes.c_ulong(len(some))
            copied = function(pid, ours, count, theirs, count, ctypes.c_ulong(0))
            if copied <= 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            some = _behind(some, copied)


def _behind(pieces: list[tuple[int, int, int]], copied: int) -> list[tuple[int, int, int]]:
    """Return what is left to copy."""
    left = []
    for ours, nbytes, theirs in pieces:
        done = min(copied, nbytes)
        copied -= done
        if done < nbytes:
            left.append((ours + done, nbytes - done, theirs + done))
    return left
