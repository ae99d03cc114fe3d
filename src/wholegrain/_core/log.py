"""The logger of the package, made when there is something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """Return the logger named `wholegrain`."""
    import logging  # Takes a while to import, and most programs never hear from us.

    return logging.getLogger("wholegrain")


def name_worker(index: int) -> None:
    """Begin what this process logs with `[worker <index>]`, where nobody has set up logging."""
    import logging

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter(f"[worker {index}] %(message)s"))


def say(text: str) -> None:
    """Log what the user has asked for, at level info; where that is not shown, print it."""
    import logging
    import sys

    log = logger()
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        log.info("%s", text)
    else:
        print(text, file=sys.stderr, flush=True)
    if "google.colab" in sys.modules:
        print(text)
