"""New interpreters like this one: how they are started, and what they find in their environment."""

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
# The same for all processes, so that a replaced worker hashes strings as the first one did.
_HASH_SEED = str(int.from_bytes(os.urandom(4), "little"))


def worker_environ() -> dict[str, str]:
    """Return the environment of workers: this process's, without its accelerators.

    A worker that imports jax or torch would otherwise reserve memory of the devices that the main
    process trains on. WHOLEGRAIN_WORKER_DEVICES=1 leaves them visible. WHOLEGRAIN_WORKER=1 tells
    code that it runs in a worker.
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
    """Return the environment of a process that is, or forks, workers."""
    environ = worker_environ()
    environ.setdefault("PYTHONHASHSEED", _HASH_SEED)
    # Workers share the processors: a pool of threads in each of them only gets in the way. And
    # a process to be forked should not have threads.
    if "OMP_NUM_THREADS" not in environ:
        environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return environ


def command(code: str, *arguments: str) -> list[str]:
    """Return how to run Python code in a new interpreter, like this one.

    After the arguments comes where this process looks for modules.
    """
    return [sys.executable, *_interpreter_flags(), "-c", code, *arguments, *module_path()]


def _interpreter_flags() -> list[str]:
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return flags


def credentials() -> tuple[Any, ...]:
    """Return as which user and groups this process runs."""
    if sys.platform == "win32":
        return ()
    # macOS has no saved numbers to ask for.
    users = os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())
    groups = os.getresgid() if hasattr(os, "getresgid") else (os.getgid(), os.getegid())
    return users, groups, sorted(os.getgroups())


def module_path() -> list[str]:
    """Return where this process looks for modules."""
    return [str(entry) for entry in sys.path]
