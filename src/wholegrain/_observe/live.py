"""Shows the runs of this program to `wholegrain top` and `wholegrain dashboard`.

A second after a run was opened, this process listens on a local socket whose name contains its id.
Whoever connects as the same user gets one snapshot of all runs, as JSON. While nobody does, the
only cost is a thread that sleeps in the system.

Linux has socket names that are no files, so nothing is left if the process is killed. Elsewhere
the socket is a file in a folder that only this user can enter.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from wholegrain._core.interruption import suppress_errors
from wholegrain._observe import at_work, outline, visible
from wholegrain._read import forks

VERSION = 1
_PREFIX = "wholegrain-"
_SEND_S = 10.0
_NAMES_ARE_NO_FILES: bool = sys.platform == "linux"


def serve() -> None:
    """Answer others who want to look at the runs of this process, until it ends."""
    if hasattr(socket, "AF_UNIX"):
        with contextlib.suppress(OSError):  # For example, no descriptors are left.
            Listener().serve()


def address_of(pid: int) -> str:
    """Return the name of the socket of a process."""
    if _NAMES_ARE_NO_FILES:
        return f"\0{_PREFIX}{pid}"
    return str(_folder() / f"{_PREFIX}{pid}")


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"


def visible_pids() -> list[int]:
    """Return the ids of the processes that listen."""
    if _NAMES_ARE_NO_FILES:
        lines = Path("/proc/net/unix").read_text().splitlines()
        names = [line.rpartition(" ")[2].removeprefix("@") for line in lines]
    else:
        names = [path.name for path in _folder().glob(f"{_PREFIX}*")]
    numbers = [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]
    return sorted({int(number) for number in numbers if number.isdecimal()})


def ask(pid: int, timeout: float = 5.0) -> dict[str, Any]:
    """Return a snapshot of the runs of a process.

    Raises:
        OSError: If it does not listen, does not answer, or belongs to another user.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(address_of(pid))
        _check_user(connection)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    if not parts:
        raise PermissionError(f"Process {pid} belongs to another user.")
    answer: dict[str, Any] = json.loads(b"".join(parts))
    return answer


def _check_user(connection: socket.socket) -> None:
    """Raise unless the process at the other end belongs to the user of this one."""
    if hasattr(socket, "SO_PEERCRED"):  # Elsewhere, nobody else can enter the folder.
        size = struct.calcsize("3i")
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        _, user, _ = struct.unpack("3i", found)
        if user != os.getuid():
            raise PermissionError("The other process belongs to another user.")


class Listener:
    """Answers each connection with a snapshot."""

    def __init__(self) -> None:
        address = address_of(os.getpid())
        self._socket = socket.socket(socket.AF_UNIX)
        if not address.startswith("\0"):
            _folder().mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)
        self._socket.bind(address)
        self._socket.listen(8)
        forks.call_in_child(self, lambda listener: listener._socket.close())

    def serve(self) -> None:
        """Answer, until the process ends."""
        while True:
            connection, _ = self._socket.accept()
            with suppress_errors(), connection:  # The next one may succeed.
                connection.settimeout(_SEND_S)
                _check_user(connection)
                connection.sendall(json.dumps(snapshot(), default=str).encode())


def snapshot() -> dict[str, Any]:
    """Return what this program is doing, as plain values."""
    runs = []
    for observed, opened_at in visible.current():
        holder = observed.holder()
        if holder is not None and not holder.is_closed:
            with suppress_errors():  # It may be closed meanwhile.
                runs.append(_run(holder, observed, opened_at))
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "program": " ".join(sys.argv),
        "time": time.time(),
        "cpu_seconds": time.process_time(),
        "runs": runs,
        "at_work": at_work.places(),
    }


def _run(holder: Any, observed: Any, opened_at: float) -> dict[str, Any]:
    return {
        "id": id(observed),
        "pipeline": outline.line(holder.opened_from),
        "seconds": time.perf_counter() - opened_at,
        "report": holder.last_report().as_dict(),
        **holder.glance().as_dict(),
        "buffers": observed.buffers(),
        "workers": observed.worker_times(),
    }
