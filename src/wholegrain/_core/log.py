"""The logger of the package, created when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """Return the logger named `wholegrain`."""
    import logging  # Slow to import, and most programs never log anything from here.

    return logging.getLogger("wholegrain")


def name_worker(index: int) -> None:
    """Prefix log messages with `[worker <index>]` if logging is not configured."""
    import logging

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter(f"[worker {index}] %(message)s"))


def say(text: str) -> None:
    """Log output that the user has requested at level info, or print it if that level is off."""
    import logging
    import sys

    log = logger()
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        log.info("%s", text)
    else:
        print(text, file=sys.stderr, flush=True)
    if "google.colab" in sys.modules:
        print(text)
