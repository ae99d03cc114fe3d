"""The arguments for saving and restoring an iterator with Orbax. Importing it imports Orbax."""

import dataclasses
from typing import Any

try:
    import orbax.checkpoint as ocp  # type: ignore[import-not-found,import-untyped,unused-ignore]
except Exception as error:  # Incompatible versions fail in many ways.
    raise ImportError(
        "`CheckpointSave` and `CheckpointRestore` need Orbax, which is installed but cannot be"
        f" imported: {type(error).__name__}: {error}"
    ) from error

from wholegrain.checkpoint.handler import CheckpointHandler


@ocp.args.register_with_handler(CheckpointHandler, for_save=True)
@dataclasses.dataclass
class CheckpointSave(ocp.args.CheckpointArgs):  # type: ignore[misc,unused-ignore]
    """Save the position of an iterator.

    Args:
        item: The iterator.
    """

    item: Any


@ocp.args.register_with_handler(CheckpointHandler, for_restore=True)
@dataclasses.dataclass
class CheckpointRestore(ocp.args.CheckpointArgs):  # type: ignore[misc,unused-ignore]
    """Restore the position of an iterator.

    Args:
        item: The iterator to restore, which is also returned.
    """

    item: Any
