"""The logger of the package, made when there is something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """Return the logger named `wholegrain`."""
    import logging  # Takes a while to import, and most programs never hear from us.

    return logging.getLogger("wholegrain")
