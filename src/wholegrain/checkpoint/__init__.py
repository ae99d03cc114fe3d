"""Iterators saved and restored with Orbax."""

from typing import TYPE_CHECKING, Any

from wholegrain.checkpoint.handler import CheckpointHandler as CheckpointHandler

if TYPE_CHECKING:
    from wholegrain.checkpoint.args import CheckpointRestore as CheckpointRestore
    from wholegrain.checkpoint.args import CheckpointSave as CheckpointSave

_NEED_ORBAX = ("CheckpointSave", "CheckpointRestore")


def __getattr__(name: str) -> Any:
    # Importing Orbax takes a second and brings jax: only for programs that use it.
    if name in _NEED_ORBAX:
        from wholegrain.checkpoint import args

        return getattr(args, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_NEED_ORBAX]
