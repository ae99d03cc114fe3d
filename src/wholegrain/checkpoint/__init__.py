"""Saves and restores iterators with Orbax."""

import importlib.util
from typing import TYPE_CHECKING, Any

from wholegrain._core.digest import merge_digests as merge_digests
from wholegrain._core.install import install_command
from wholegrain._state.fingerprint import fingerprint as fingerprint
from wholegrain._state.lanes import merge_states as merge_states
from wholegrain.checkpoint.handler import CheckpointHandler as CheckpointHandler

if TYPE_CHECKING:
    from wholegrain.checkpoint.args import CheckpointRestore as CheckpointRestore
    from wholegrain.checkpoint.args import CheckpointSave as CheckpointSave

_NEED_ORBAX = ("CheckpointSave", "CheckpointRestore")


def __getattr__(name: str) -> Any:
    if name not in _NEED_ORBAX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _orbax_is_installed():
        # An AttributeError, so that programs can check with `hasattr`.
        raise AttributeError(f"`{name}` needs Orbax: `{install_command('orbax')}`.")
    # Importing Orbax takes a second and imports jax, so do it only in programs that use it.
    from wholegrain.checkpoint import args

    return getattr(args, name)


def _orbax_is_installed() -> bool:
    try:
        return importlib.util.find_spec("orbax.checkpoint") is not None
    except ModuleNotFoundError:
        return False


def __dir__() -> list[str]:
    return [*globals(), *(_NEED_ORBAX if _orbax_is_installed() else ())]
