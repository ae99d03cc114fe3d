"""The command line and the environment of new interpreters for workers and the fork server."""

import functools
import os
import subprocess
import sys
from typing import Any

from wholegrain._core.log import logger

_HIDDEN_DEVICES = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
}
# The same for all processes, so that a replacement worker hashes strings as the first one did.
_HASH_SEED = str(int.from_bytes(os.urandom(4), "little"))


def worker_environ() -> dict[str, str]:
    """Return the environment of workers: that of this process, with accelerators hidden.

    A worker that imports jax or torch would otherwise reserve memory on the devices that the main
    process trains on. WHOLEGRAIN_WORKER_DEVICES=1 leaves them visible. WHOLEGRAIN_WORKER=1 is set
    so that code can detect that it runs in a worker.
    """
    environ = {**os.environ, "WHOLEGRAIN_WORKER": "1"}
    if environ.get("WHOLEGRAIN_WORKER_DEVICES", "0") in ("", "0"):
        environ.update(_HIDDEN_DEVICES)
    else:
        _warn_of_devices()
    return environ


@functools.cache
def _warn_of_devices() -> None:
    logger().warning(
        "Worker processes can see the accelerators of this process, because the environment"
        " variable WHOLEGRAIN_WORKER_DEVICES is set. Each of them may reserve memory there."
    )


def environ() -> dict[str, str]:
    """Return the environment of a spawned worker or of the fork server."""
    environ = worker_environ()
    environ.setdefault("PYTHONHASHSEED", _HASH_SEED)
    # Workers share the CPUs, so a thread pool in each of them would oversubscribe them. The fork
    # server should not have threads either.
    if "OMP_NUM_THREADS" not in environ:
        environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return environ


def command(code: str, *arguments: str) -> list[str]:
    """Return the command that runs Python code in a new interpreter with the flags of this one.

    The entries of `sys.path` follow after `arguments`.
    """
    return [sys.executable, *_interpreter_flags(), "-c", code, *arguments, *module_path()]


def _interpreter_flags() -> list[str]:
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return flags


def credentials() -> tuple[Any, ...]:
    """Return the user and group ids of this process."""
    if sys.platform == "win32":
        return ()
    # macOS has no call for the saved ids.
    users = os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())
    groups = os.getresgid() if hasattr(os, "getresgid") else (os.getgid(), os.getegid())
    return users, groups, sorted(os.getgroups())


def module_path() -> list[str]:
    """Return the entries of `sys.path`."""
    return [str(entry) for entry in sys.path]
